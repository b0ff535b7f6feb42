// Why no looped pipeline fits, for people.
#pragma once

#include <string>

#include "planner_service/planner/planner.h"
#include "planner_service/search/operator_costs.h"

namespace stagewright::pfeife {

// `excess` is by how much the best cuts exceeded the memory of a device, as a share of it;
// `rejection` what the evaluator said of the closest strategy, or empty. O(operators).
std::string WhyInfeasible(const OperatorCosts& costs, const PlanOptions& options, double excess,
                          const std::string& rejection);

}  // namespace stagewright::pfeife
