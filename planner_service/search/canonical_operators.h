// Operators under ids that follow from what they are and what they are joined to, not from the
// order in which a graph happens to list them: a search then answers alike whatever that order is.
#pragma once

#include "common/graph/operator_graph.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

// The problem's operators in another topological order, each with its own nodes. It is depth first:
// of those that may come next, one that the last one released; of these the one with the most work
// on its longest way to an end, so that what light branches make waits least where branches meet,
// as models mostly list them; then by what tells operators apart in all orders (a colour refinement
// of the DAG by costs, after Weisfeiler and Leman). What that cannot tell apart keeps its order, as
// equal branches do. O((n + m) log n + nodes * kinds).
OperatorGraph CanonicalOperators(const Problem& problem);

}  // namespace stagewright
