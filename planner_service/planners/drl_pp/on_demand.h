// DRL-PP without LibTorch at start-up: the planner lives in a shared module that is loaded when it
// first plans, so that programs which may never use it start at once and run where the module is
// not installed.
#pragma once

#include <memory>

#include "planner_service/planner/planner.h"
#include "planner_service/planners/drl_pp/drl_pp.h"

namespace stagewright {

// Solve answers FAILED_PRECONDITION if the module cannot be loaded. Where `config` names no policy
// file, STAGEWRIGHT_DRL_PP_LOAD and STAGEWRIGHT_DRL_PP_SAVE do.
std::unique_ptr<Planner> MakeDrlPpPlannerOnDemand(DrlPpConfig config);
std::unique_ptr<Planner> MakeDrlPpPlannerOnDemand();

}  // namespace stagewright
