// Node: an operator is never cut, and its replicas sum their gradients.
#pragma once

#include "planner_service/evaluator/bounds/least_costs.h"

namespace stagewright {

// ns; docs/lower-bound.md, "Node" and "Path". Without a flush, what still holds for one. O(n).
double BoundPath(const BoundProblem& problem, int32_t v);
// With so many replicas of the node, or more; infinite where there can be none.
double BoundNode(const BoundProblem& problem, int32_t v, bool asynchronous,
                 int32_t least_replicas = 1);

}  // namespace stagewright
