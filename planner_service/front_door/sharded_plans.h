// Whether replicas share out the optimizer's state, and the gradients, where the request leaves it
// open.
#pragma once

#include <functional>

#include "common/base/status.h"
#include "planner_service/front_door/front_door.h"

namespace stagewright {

// How a request that says it is answered.
using SolveFunction = std::function<absl::StatusOr<PlanResponse>(
    const PlanRequest& request, SearchContext& context, const ImprovementCallback& improved)>;

// Searches with whole states and then with shared ones, and gives the faster answer; of two equally
// fast ones that with whole states. The best plan with whole states is judged with shared ones,
// too. Gradients, whose sums come once per micro-batch instead of once a step, are shared out only
// where neither way has a plan that fits. With a deadline, each of the first two searches has half
// of the time, and a third one what they leave; the context is Stopped() if one was.
// What may not share out anything (asynchronous plans, plans by hand that do not say so, a single
// device) is searched once. Errors of `solve`.
absl::StatusOr<PlanResponse> SolveEitherSharding(const PlanRequest& request, SearchContext& context,
                                                 const ImprovementCallback& on_improvement,
                                                 const SolveFunction& solve);

}  // namespace stagewright
