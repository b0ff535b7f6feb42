// The synchronous portfolio: members, then a search of auto's own.
#pragma once

#include <vector>

#include "planner_service/models/draft.h"
#include "planner_service/planner/planner.h"
#include "planner_service/planners/auto/incumbents.h"

namespace stagewright {

// Termination and reason of an answer without a strategy: a member's proof, or that none was found.
void SayNoneFound(const Problem& problem, const PlanOptions& options, const Incumbents& incumbents,
                  const Outcome& none, Outcome& outcome);

// The best synchronous strategy. `found` gets every strategy that was offered to the evaluator and
// accepted. REQUIRES: options.asynchronous is false.
absl::StatusOr<Outcome> SolveSynchronous(const Problem& problem, const PlanOptions& options,
                                         SearchContext& context, std::vector<Strategy>* found);

}  // namespace stagewright
