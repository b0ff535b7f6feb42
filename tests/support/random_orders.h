// Explicit orders of the compute steps of a strategy.
#pragma once

#include "common/graph/graph.h"
#include "common/strategy/strategy.h"
#include "tests/support/random.h"

namespace stagewright::testing {

// Explicit orders of a random execution of the strategy, some stages with split backward passes,
// put into it by SetOrders.
void DrawOrders(Rng& rng, const Graph& graph, Strategy& strategy);

}  // namespace stagewright::testing
