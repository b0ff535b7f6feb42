// Why there is no plan, in words a user can act on.
#pragma once

#include <string>

#include "planner_service/planners/graphpipe/candidates.h"

namespace stagewright {

// Options that no partition of this problem can meet; empty if there is nothing to object to.
std::string ImpossibleOptions(const Problem& problem, const PlanOptions& options);

// What binds, by how much, and what would help. REQUIRES: the search over `space` found nothing.
std::string WhyInfeasible(const SearchSpace& space, const PlanOptions& options,
                          const SearchContext& context);

}  // namespace stagewright
