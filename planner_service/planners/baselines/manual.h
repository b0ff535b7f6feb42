// Plans by hand, judged.
#pragma once

#include <memory>

#include "planner_service/planner/planner.h"

namespace stagewright {

// "manual": the plan in PlanOptions::manual, judged. INVALID_ARGUMENT if it is none or breaks a
// condition, infeasible if it does not fit. It is held to nothing else in the options: the plan is
// what was asked for.
std::unique_ptr<Planner> MakeManualPlanner();

}  // namespace stagewright
