// A plan with branches, for tests of the views.
#pragma once

#include "clients/cli/view/plan_context.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

// Two branches and what joins them, on five devices of two nodes.
v1::PlanResponse BranchedPlan();

// The names of its seven nodes, of their modules and of its devices.
PlanContext BranchedNames();

}  // namespace stagewright::cli
