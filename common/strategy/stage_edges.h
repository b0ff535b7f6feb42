// The edges that a strategy of a kind has over given stages.
#pragma once

#include <vector>

#include "common/graph/graph.h"
#include "common/strategy/strategy.h"

namespace stagewright {

// The DataEdges of the stages and, if the kind is sequential, an edge from each stage to the next
// one; sorted, each once. O(nodes + reads + stages), and sorting.
std::vector<StageEdge> StageEdges(const Graph& graph, StrategyKind kind,
                                  const std::vector<Stage>& stages);

}  // namespace stagewright
