// The planners that "auto" runs before it searches on its own.
#pragma once

#include <memory>
#include <vector>

#include "planner_service/planner/planner.h"

namespace stagewright {

struct AutoMember {
  std::unique_ptr<Planner> planner;
  bool sequential = false;  // Makes sequential strategies (or single stages).
  double share = 0.25;      // Of the time that auto has, at most.
};

// Those that fit the problem and the options, in the order in which they run: cheap ones first, so
// that a deadline finds an answer.
std::vector<AutoMember> AutoMembers(const Problem& problem, const PlanOptions& options);

}  // namespace stagewright
