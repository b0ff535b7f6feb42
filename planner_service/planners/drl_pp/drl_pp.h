// DRL-PP: a policy network learns where to cut and where to place by trial. See drl_pp.cc and
// docs/planners/drl_pp.md. No LibTorch here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "planner_service/planner/planner.h"
#include "planner_service/planners/drl_pp/reward.h"

namespace stagewright {

struct DrlPpConfig {
  int32_t steps = 600;      // Policy updates at most,
  int32_t patience = 150;   // and so many after the last better strategy.
  std::string load_policy;  // A file to start from; empty: random weights from PlanOptions::seed.
  std::string save_policy;  // Where the policy is written at the end, if not empty.
  // Makes the reward of a problem; null: SimulatedSeconds.
  std::function<MeasureStrategy(const Problem&)> reward;
};

std::unique_ptr<Planner> MakeDrlPpPlanner(DrlPpConfig config = {});

}  // namespace stagewright
