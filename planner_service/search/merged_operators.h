// Fewer planner operators for models too large to be searched one operator at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"

namespace stagewright {

// Neighbours in chains united, so that at most `most` operators are left if chains allow it, and
// the heaviest union is about as light as that number permits. An operator follows another in a
// chain if no other is between them, beside them, or reads or feeds only one of them, edges that
// a longer path implies aside; so branches and joins stay what they are, and who reaches whom among
// the unions is what it was among their operators. `weight[operator]` is the work of each (any
// unit, >= 0). What is replicated stays replicated. Deterministic. O(n m / 64 + n log(n)).
OperatorGraph MergeChains(const Graph& graph, const OperatorGraph& operators,
                          const std::vector<double>& weight, int32_t most);

}  // namespace stagewright
