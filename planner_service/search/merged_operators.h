// Fewer planner operators for models too large to be searched one operator at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

// Neighbours in chains united, so that at most `most` operators are left if chains allow it, and
// the heaviest union is about as light as that number permits. An operator follows another in a
// chain if no other is between them, beside them, or reads or feeds only one of them, edges that
// a longer path implies aside; so branches and joins stay what they are, and who reaches whom among
// the unions is what it was among their operators. `weight[operator]` is the work of each (any
// unit, >= 0). What is replicated stays replicated. Deterministic. O(n m / 64 + n log(n)).
OperatorGraph MergeChains(const Graph& graph, const OperatorGraph& operators,
                          const std::vector<double>& weight, int32_t most);

// Operators times devices beyond which a problem has too many to be searched, and how many then are
// left: what is searched in some ten seconds.
inline constexpr int64_t kMostSearched = 2'000'000;
inline constexpr int64_t kSearchedAtEase = 1'000'000;

// The operators of a problem that has too many, united by their time; nullopt if it has not, or if
// its devices alone are too many. As MergeChains.
std::optional<OperatorGraph> FewerOperators(const Problem& problem);

}  // namespace stagewright
