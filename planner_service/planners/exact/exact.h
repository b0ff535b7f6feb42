// The exact planner: the optimum of small problems, for others to be held against.
#pragma once

#include <memory>

#include "planner_service/planner/planner.h"

namespace stagewright {

// Larger problems are answered by `limit` with the plan that the search would have started from.
inline constexpr int32_t kMostExactOperators = 16;
inline constexpr int32_t kMostExactDevices = 6;

std::unique_ptr<Planner> MakeExactPlanner();  // "exact"

}  // namespace stagewright
