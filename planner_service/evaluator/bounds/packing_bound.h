// Packing: operators whose gradients are dear to sum are shared out whole.
#pragma once

#include "planner_service/evaluator/bounds/least_costs.h"

namespace stagewright {

// ns, or 0 where it is not more than `known`; docs/lower-bound.md, "Packing". O(nodes * devices),
// and O(nodes^2) for nodes whose sums take longer than `known`.
double BoundPacking(const BoundProblem& problem, double known, bool asynchronous);

}  // namespace stagewright
