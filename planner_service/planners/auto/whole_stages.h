// Pipelines in which only the stages that must run the whole mini-batch at once do.
#pragma once

#include "planner_service/planner/planner.h"
#include "planner_service/planners/auto/incumbents.h"

namespace stagewright {

// Plans the problem as if no node needed the whole mini-batch, and offers what that finds with the
// stages changed that do (WithWholeStages). REQUIRES: HasWholeStages(problem). Adds to `outcome`'s
// counts.
absl::Status ConsiderWholeStages(const Problem& problem, const PlanOptions& options,
                                 const SearchContext& context, Incumbents& incumbents,
                                 Outcome& outcome);

}  // namespace stagewright
