// Why a device's program does not fit its memory, and what would make it fit: for people.
#pragma once

#include "common/base/status.h"
#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/cost/parameters.h"
#include "common/program/program.h"
#include "common/topology/cluster.h"
#include "common/training/autocast.h"

namespace stagewright {

// What the memory of a device goes to.
struct MemoryParts {
  Bytes parameters = 0;  // Parameters and their gradients.
  Bytes optimizer = 0;
  Bytes activations = 0;  // Activations, messages and all else that comes and goes within a step.
};

// `peak` is the device's peak memory, resident bytes included.
MemoryParts PartsOf(const MessageTypes& types, const Program& program, const DeviceProgram& device,
                    Optimizer optimizer, Bytes peak);

// RESOURCE_EXHAUSTED: device, need, budget, overshoot, the dominating part and what would help.
absl::Status OverMemory(const MessageTypes& types, const Cluster& cluster, const Program& program,
                        const DeviceProgram& device, Optimizer optimizer, Bytes peak);

}  // namespace stagewright
