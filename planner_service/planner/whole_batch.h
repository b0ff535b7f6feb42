// Stages whose nodes need the whole mini-batch in one pass on one device (NeedsWholeBatch), for
// planners that know nothing of them.
#pragma once

#include <vector>

#include "planner_service/planner/planner.h"

namespace stagewright {

// Some node of the problem's graph needs the whole mini-batch.
bool HasWholeStages(const Problem& problem);

// By operator: one of its nodes does. O(nodes).
std::vector<bool> WholeOperators(const Problem& problem);

// `options` narrowed to plans without micro-batches and replicas: what a planner without
// PlannerAbilities::whole_stages is asked for where HasWholeStages().
PlanOptions OnWholeBatches(const Problem& problem, PlanOptions options);

// planner.Solve(), with OnWholeBatches() where it has to be. An outcome without a plan says which
// node asks for the whole mini-batch, and how to allow otherwise if that can be allowed.
absl::StatusOr<Outcome> SolveOnWholeBatches(const Planner& planner, const Problem& problem,
                                            const PlanOptions& options, SearchContext& context);

// The strategy with the whole mini-batch in one pass on one device, the fastest of its own, in
// every stage that needs it. Without explicit orders; samples in flight by AssignInFlight.
// O(nodes).
Strategy WithWholeStages(const Problem& problem, Strategy strategy);

}  // namespace stagewright
