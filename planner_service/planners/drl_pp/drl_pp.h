// DRL-PP: a policy network learns where to cut and where to place by trial. See drl_pp.cc and
// docs/planners/drl_pp.md. No LibTorch here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "planner_service/planner/planner.h"

namespace stagewright {

struct DrlPpConfig {
  int32_t steps = 600;      // Policy updates, at most.
  int32_t patience = 150;   // Policy updates after the last better strategy, at most.
  std::string load_policy;  // A file to start from; empty: random weights from PlanOptions::seed.
  std::string save_policy;  // Where the policy is written at the end, if not empty.
};

// What the planner says of itself, whether it searches or is only loaded when it is to search.
class DrlPp : public Planner {
 public:
  std::string name() const override { return "drl_pp"; }
  std::string description() const override {
    return "DRL-PP: a policy network learns cuts and placement by trial";
  }
  PlannerAbilities abilities() const override {
    return {.asynchronous = true, .learns_by_trial = true};
  }
};

std::unique_ptr<Planner> MakeDrlPpPlanner(DrlPpConfig config = {});

}  // namespace stagewright
