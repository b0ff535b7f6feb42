// Operators under ids that follow from what they are and what they are joined to, not from the
// order in which a graph happens to list them: a search then answers alike whatever that order is.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/operator_graph.h"
#include "planner_service/models/operator_costs.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

// What tells operators apart whatever their order: equal ones cost the same and have neighbours of
// which the same holds (a colour refinement of the DAG by costs, after Weisfeiler and Leman). By
// operator. O(n + m + nodes * kinds).
std::vector<uint64_t> OperatorColours(const OperatorCosts& costs);

// The problem's operators in another topological order, each with its own nodes. It is depth first:
// of those that may come next, one that the last one released; of these the one with the most work
// on its longest way to an end, so that what light branches make waits least where branches meet,
// as models mostly list them; then by colour. What has one colour keeps its order, as equal
// branches do. O((n + m) log n + nodes * kinds).
OperatorGraph CanonicalOperators(const Problem& problem);

}  // namespace stagewright
