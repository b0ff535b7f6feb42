// Joint: a large share makes little work and a long way through the graph; no strategy has both
// small, and no backward pass begins before a sample has come to the loss.
#pragma once

#include "planner_service/evaluator/bounds/least_costs.h"
#include "planner_service/evaluator/bounds/work_bound.h"

namespace stagewright {

// ns, at least that of `work`; docs/lower-bound.md, "Joint". O(rounds * (nodes * shares * kinds +
// edges)).
double BoundJointly(const BoundProblem& problem, const WorkBound& work);

}  // namespace stagewright
