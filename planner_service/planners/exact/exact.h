// The exact planner: the optimum of small problems, for others to be held against.
#pragma once

#include <memory>

#include "planner_service/planner/planner.h"

namespace stagewright {

// Larger problems are answered by `limit` with the plan that the search would have started from.
inline constexpr int32_t kMostExactOperators = 16;
inline constexpr int32_t kMostExactDevices = 6;

// Planners whose answers the search starts from.
struct ExactStarts {
  std::unique_ptr<Planner> graph;
  std::unique_ptr<Planner> sequential;  // In place of `graph` where only chains are asked for.
  std::unique_ptr<Planner> single;      // Where those find nothing for a problem that is too large.
};

// "exact". REQUIRES: all starts are there.
std::unique_ptr<Planner> MakeExactPlanner(ExactStarts starts);

}  // namespace stagewright
