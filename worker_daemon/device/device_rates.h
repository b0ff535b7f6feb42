// What a device can do, measured by a few small kernels: the rates that the analytic cost model
// needs.
#pragma once

#include <string>

#include "common/base/units.h"
#include "common/topology/cluster.h"

namespace stagewright {

// Runs matrix products, copies and tiny operators for a few tenths of a second. `name` becomes the
// kind's name. Other programs that have cores meanwhile slow it by what they do to caches and
// memory alone (work_clock.h).
DeviceKind MeasureDeviceRates(const std::string& torch_device, const std::string& name);

}  // namespace stagewright
