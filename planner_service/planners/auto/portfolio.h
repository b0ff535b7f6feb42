// The synchronous portfolio: members, then a search of auto's own.
#pragma once

#include <vector>

#include "planner_service/models/draft.h"
#include "planner_service/planner/planner.h"
#include "planner_service/planners/auto/incumbents.h"

namespace stagewright {

// Runs the planners that can do what the options ask, each within its effort, and offers their
// answers to the incumbents. `none` gets the answer of one that found nothing, a proof of
// infeasibility before any other; the counts of `outcome` grow. The strategies found.
absl::StatusOr<std::vector<Strategy>> RunMembers(const Problem& problem, const PlanOptions& options,
                                                 const SearchContext& context,
                                                 Incumbents& incumbents, Outcome& none,
                                                 Outcome& outcome);

// Termination and reason of an answer without a strategy: a member's proof, or that none was found.
void SayNoneFound(const Problem& problem, const PlanOptions& options, const Incumbents& incumbents,
                  const Outcome& none, Outcome& outcome);

// The best synchronous strategy. `found` gets every strategy that was offered to the evaluator and
// accepted. REQUIRES: options.asynchronous is false.
absl::StatusOr<Outcome> SolveSynchronous(const Problem& problem, const PlanOptions& options,
                                         SearchContext& context, std::vector<Strategy>* found);

}  // namespace stagewright
