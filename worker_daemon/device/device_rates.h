// What a device can do, measured by a few small kernels: the rates that the analytic cost model
// needs.
#pragma once

#include <string>

#include "common/base/units.h"
#include "common/topology/cluster.h"

namespace stagewright {

// Runs matrix products, copies and tiny operators for about a tenth of a second. `name` becomes the
// kind's name. The figures are those of an otherwise idle machine; processes that share its cores
// make them optimistic.
DeviceKind MeasureDeviceRates(const std::string& torch_device, const std::string& name);

}  // namespace stagewright
