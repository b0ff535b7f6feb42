// How long an update of parameters takes.
#pragma once

#include <cstdint>

#include "common/base/units.h"
#include "common/topology/cluster.h"

namespace stagewright {

// The optimizer step of `parameters` parameters over `resident` bytes (parameters, gradients,
// optimizer state): memory-bound, every byte is read and written once, and the kind's fixed costs.
// 0 for 0 bytes.
Nanos OptimizerStepTime(const DeviceKind& kind, Bytes resident, int64_t parameters);

// At least this much, ns, `resident` bytes add to an optimizer step over them and others.
double LeastOptimizerStepTime(const DeviceKind& kind, Bytes resident);

}  // namespace stagewright
