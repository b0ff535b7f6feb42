// Operators joined to few groups of similar work: what the agent sees as the nodes of the model.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/dag.h"

namespace stagewright {

struct Grouping {
  std::vector<std::vector<int32_t>> groups;  // Vertices, ascending; every vertex in one group.
  Dag dag;                                   // Over the groups.
};

// At most `most` groups (>= 1). Joins a vertex with its only predecessor or its only successor,
// light pairs first, which keeps branches apart and cannot make a cycle; where that does not go far
// enough, intervals of a topological order are joined. Deterministic. O(edges log(vertices)).
Grouping GroupOperators(const Dag& dag, const std::vector<double>& weight, int32_t most);

}  // namespace stagewright
