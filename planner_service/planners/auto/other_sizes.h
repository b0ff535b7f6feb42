// Micro-batch sizes next to that of the answer, in work that is left.
#pragma once

#include "planner_service/planner/planner.h"
#include "planner_service/planners/auto/draft_search.h"
#include "planner_service/planners/auto/incumbents.h"

namespace stagewright {

// Rounds of `search` from members' answers and from the best incumbent with micro-batches next to
// its own, until one gains nothing, the best takes no longer than `bound`, or no work is left. What
// came before is done as if there were none, so that answers only get faster. The search has run.
absl::Status ConsiderOtherSizes(const Problem& problem, const PlanOptions& options,
                                const SearchContext& context, Nanos bound, DraftSearch& search,
                                Incumbents& incumbents);

}  // namespace stagewright
