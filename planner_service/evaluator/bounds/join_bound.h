// Join: what a node reads comes in through the ports of its devices, unless what makes it runs
// there, too.
#pragma once

#include "planner_service/evaluator/bounds/least_costs.h"

namespace stagewright {

// ns, or 0 where it is not more than `known`; docs/lower-bound.md, "Join". O(devices^2), and for
// each of a few nodes O(devices * rounds * nodes).
double BoundJoins(const BoundProblem& problem, double known);

}  // namespace stagewright
