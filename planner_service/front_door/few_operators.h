// Why a model leaves a planner little to cut.
#pragma once

#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"

namespace stagewright {

// What holds the heaviest operator together, named by node and module: one node that is most of the
// work, values that cannot be cut between samples, a state that several nodes share, or only that
// its nodes are light. `weights` are those it was coarsened with. O(nodes + reads).
std::string WhyFewOperators(const Graph& graph, const OperatorGraph& operators,
                            const std::vector<double>& weights);

}  // namespace stagewright
