// The search again from other starts and with other draws, in work that is left.
#pragma once

#include <vector>

#include "planner_service/models/draft.h"
#include "planner_service/planner/planner.h"
#include "planner_service/planners/auto/incumbents.h"

namespace stagewright {

// Searches from `found`, the members' answers, and from other starts than the first: without
// recomputation where the options leave that open, with all permissions, with one stage a device,
// and with whole backward passes; unless the best takes hardly longer than `bound` or little work
// is left. What came before is done as if there were none, so that answers only get faster. Adds
// the schedules that were made to `outcome`.
absl::Status SearchAgain(const Problem& problem, const PlanOptions& options,
                         const SearchContext& context, Nanos bound, const std::vector<Draft>& found,
                         Incumbents& incumbents, Outcome& outcome);

}  // namespace stagewright
