// Node: an operator is never cut, and its replicas sum their gradients.
#pragma once

#include "planner_service/evaluator/bounds/least_costs.h"

namespace stagewright {

// ns; docs/lower-bound.md, "Node" and "Path". Without a flush, what still holds for one. O(n).
double BoundNode(const BoundProblem& problem, int32_t v, bool asynchronous);
double BoundPath(const BoundProblem& problem, int32_t v);

}  // namespace stagewright
