// What a user should know about a plan that is right all the same.
#pragma once

#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/strategy/strategy.h"
#include "common/topology/cluster.h"

namespace stagewright {

// One sentence each: layers whose result depends on the micro-batch and that the plan runs on less
// than the mini-batch at once; devices without work.
std::vector<std::string> StrategyWarnings(const Graph& graph, const Cluster& cluster,
                                          const Strategy& strategy);

// StrategyWarnings, and for a strategy that was searched: parts of the graph that are not
// series-parallel.
std::vector<std::string> PlanWarnings(const Graph& graph, const OperatorGraph& operators,
                                      const Cluster& cluster, const Strategy& strategy);

}  // namespace stagewright
