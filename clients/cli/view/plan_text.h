// A plan for people.
#pragma once

#include <string>

#include "clients/cli/view/plan_context.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

// The stage DAG with one line per stage, then devices, micro-batches, memory, and the plan beside
// the sequential one.
std::string PlanText(const v1::PlanResponse& response, const PlanContext& context);

}  // namespace stagewright::cli
