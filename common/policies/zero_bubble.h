// Schedules whose backward passes are split in two.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/strategy/strategy.h"

namespace stagewright {

// Zero-bubble schedules (Qi et al. 2024): the backward pass is split, and weight halves fill what
// would be bubbles. H1 keeps, per stage, the in-flight micro-batches of 1F1B, and holds no more
// micro-batches until their weight halves than 1F1B's first stage. V is meant for two stages per
// device, the second placed in reverse order; a device holds as many micro-batches, over its stages
// together, as the longest path has stages. V, and H1 where devices have several stages, take all
// passes as equally long and transfers as free. O(steps * stages per device).
absl::StatusOr<std::vector<DeviceOrder>> ZeroBubbleH1Orders(const Graph& graph,
                                                            const Strategy& strategy);
absl::StatusOr<std::vector<DeviceOrder>> ZeroBubbleVOrders(const Graph& graph,
                                                           const Strategy& strategy);

}  // namespace stagewright
