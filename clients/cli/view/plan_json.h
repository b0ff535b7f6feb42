// A plan for programs.
#pragma once

#include <nlohmann/json.hpp>

#include "clients/cli/view/plan_context.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright::cli {

// Stable keys, seconds and bytes: iteration_seconds, lower_bound_seconds, gap_ratio,
// search_seconds, termination, depth, micro_batch_size, stages[] and more; `sequential` holds the
// same for the sequential plan.
nlohmann::json PlanJson(const v1::PlanResponse& response, const PlanContext& context);

}  // namespace stagewright::cli
