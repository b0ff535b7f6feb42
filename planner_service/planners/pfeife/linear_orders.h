// Linear orders of the operators to cut into slices.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/models/operator_costs.h"

namespace stagewright::pfeife {

// Topological orders, without repetition. The first is the one that the framework traced the
// operators in, which walks one parallel branch after the other: the published planner's. The
// second interleaves parallel branches for this number of slices: it takes about a slice's work
// from one branch, then from the branch that is least far, so that neighbouring slices can run side
// by side and a looped schedule gives the parts of a branch to few devices. O((operators + edges)
// log operators).
std::vector<std::vector<int32_t>> LinearOrders(const OperatorCosts& costs, int64_t samples,
                                               int32_t slices);

}  // namespace stagewright::pfeife
