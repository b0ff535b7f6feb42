// How jobs are planned while everything else goes on: on other threads, which then call JobLife.
#pragma once

#include <functional>
#include <memory>

#include "common/base/status.h"
#include "planner_service/lifecycle/replanning.h"

namespace stagewright {

// Each is RESOURCE_EXHAUSTED if too many wait. Those that are empty are not used.
struct JobPlanners {
  using Plan = std::function<absl::Status(const Job& job, std::shared_ptr<const Cluster> cluster,
                                          std::shared_ptr<const OperatorProfile> profile,
                                          std::shared_ptr<SearchContext> context)>;
  Plan plan;   // Then calls OnPlanned.
  Plan ahead;  // While nobody waits for the plan; then calls OnPlannedAhead.
  // A plan on more devices; then calls EndGrowth.
  std::function<absl::Status(ReplanProblem problem)> replan;
};

}  // namespace stagewright
