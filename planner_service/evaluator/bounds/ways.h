// How long a sample is on its way to each node, and back.
#pragma once

#include "planner_service/evaluator/bounds/least_costs.h"

namespace stagewright {

// Sets `head` and `tail`; docs/lower-bound.md, "Ways". Where several producers meet, each either
// runs on the reader's device, one after the other, or sends what it makes. REQUIRES: costs and
// `fastest` are set. O(edges * degree * log degree).
void MeasureWays(BoundProblem& problem);

}  // namespace stagewright
