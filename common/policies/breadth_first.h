// Breadth-first pipeline parallelism.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/strategy/strategy.h"

namespace stagewright {

// All micro-batches through one stage of a device before the next stage, forward and backward
// (breadth-first pipeline parallelism, Lamy-Poirier 2023).
absl::StatusOr<std::vector<DeviceOrder>> BreadthFirstOrders(const Graph& graph,
                                                            const Strategy& strategy);

}  // namespace stagewright
