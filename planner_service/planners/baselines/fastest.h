// What the baselines share: the fastest of a few strategies, and of all that have one stage.
#pragma once

#include <string>
#include <vector>

#include "planner_service/planner/planner.h"

namespace stagewright {

// Evaluates a strategy and counts it. The first that is faster than `best` becomes it, and the
// outcome's strategy, and the context's on_improvement hears of it. False if it does not fit into
// memory or is none that may run, which `rejection` and the outcome's reason say; any other error
// is a bug of the planner. Takes what Evaluate() does.
absl::StatusOr<bool> Consider(const Problem& problem, Strategy strategy, SearchContext& context,
                              Nanos& best, Outcome& outcome, absl::Status& rejection);

// Evaluates OneStage for every choice of devices (they have the same number of devices) and every
// micro-batch size that the options allow and that gives each replica a sample, largest first.
// Keeps the fastest; ties to the first. Infeasible with the last evaluation's reason if none fits;
// limit if the context expires first. The stage recomputes if the options ask for it.
absl::StatusOr<Outcome> BestOneStage(const Problem& problem, const PlanOptions& options,
                                     const std::vector<std::vector<DeviceId>>& choices,
                                     SearchContext& context);

}  // namespace stagewright
