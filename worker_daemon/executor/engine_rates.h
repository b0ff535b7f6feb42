// What the engine itself costs on a device, and what of the device's rates training reaches: by
// steps of small networks that it runs on one device, as a job does.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/topology/cluster.h"

namespace stagewright {

// Fills in the fixed costs of passes, updates and parameters and on CPUs the rate of updates, and
// lowers all rates of `kind`, which has those of operators by themselves (device_rates.h), by one
// factor so that its analytic costs give the measured time of a step of a reference network: layers
// of 256 numbers, GELU between them, Adam, four micro-batches of 32 samples. Operators of a step
// find their operands and code in farther caches than those that are repeated do. Takes about a
// third of a second. Errors are those of the engine.
absl::StatusOr<DeviceKind> MeasureEngine(const DeviceKind& kind, const std::string& torch_device);

}  // namespace stagewright
