// DRL-PP without LibTorch at start-up: the planner lives in a shared module that is loaded when it
// first plans, so that programs which may never use it start at once and run where the module is
// not installed.
#pragma once

#include <memory>

#include "planner_service/planner/planner.h"

namespace stagewright {

// Solve answers FAILED_PRECONDITION if the module cannot be loaded.
std::unique_ptr<Planner> MakeDrlPpPlannerOnDemand();

}  // namespace stagewright
