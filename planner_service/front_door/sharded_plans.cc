#include "planner_service/front_door/sharded_plans.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace stagewright {
namespace {

bool MayShare(const PlanRequest& request) {
  return !request.options.asynchronous && request.options.allow_replicas &&
         request.planner != kManualPlanner && request.cluster->size() > 1;
}

PlanRequest With(const PlanRequest& request, OptimizerSharding sharding) {
  PlanRequest one = request;
  one.options.optimizer_sharding = sharding;
  return one;
}

Nanos TimeOf(const std::optional<JudgedPlan>& plan) {
  return plan.has_value() ? plan->evaluation.iteration_time : std::numeric_limits<Nanos>::max();
}

// The faster answer of two searches, with the work of both. An answer stands above none, and a
// proof that there is none only where both have one.
PlanResponse Faster(PlanResponse whole, PlanResponse shared) {
  const bool takes_shared =
      TimeOf(shared.best) < TimeOf(whole.best) ||
      (!whole.best.has_value() && whole.termination == Termination::kInfeasible);
  PlanResponse& taken = takes_shared ? shared : whole;
  PlanResponse& other = takes_shared ? whole : shared;
  if (TimeOf(other.sequential) < TimeOf(taken.sequential))
    taken.sequential = std::move(other.sequential);
  if (!taken.one_device.has_value()) taken.one_device = other.one_device;
  taken.lower_bound = std::min(whole.lower_bound, shared.lower_bound);
  const bool unproven = taken.best.has_value() && taken.termination == Termination::kOptimal &&
                        taken.best->evaluation.iteration_time > taken.lower_bound &&
                        other.termination != Termination::kOptimal &&
                        other.termination != Termination::kInfeasible;
  if (unproven) taken.termination = Termination::kFeasible;
  taken.search_seconds += other.search_seconds;
  taken.states += other.states;
  taken.candidates += other.candidates;
  return std::move(taken);
}

// The plan that was found with whole states, with shared ones instead if that is faster.
absl::Status TryShared(const PlanRequest& request, const SearchContext& context,
                       PlanResponse& response) {
  if (!response.best.has_value()) return absl::OkStatus();
  Strategy strategy = response.best->plan.strategy;
  strategy.optimizer_sharding = OptimizerSharding::kStates;
  auto judged = JudgeStrategy(With(request, OptimizerSharding::kStates), strategy,
                              response.best->plan.provenance.planner);
  if (!judged.ok() || judged->evaluation.iteration_time >= TimeOf(response.best))
    return absl::OkStatus();
  response.best = *std::move(judged);
  if (response.termination == Termination::kOptimal) response.termination = Termination::kFeasible;
  if (request.explain) {
    ASSIGN_OR_RETURN(response.explanation, ExplainStrategy(request, strategy, context));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PlanResponse> SolveEitherSharding(const PlanRequest& request, SearchContext& context,
                                                 const ImprovementCallback& on_improvement,
                                                 const SolveFunction& solve) {
  if (!MayShare(request))
    return solve(With(request, OptimizerSharding::kNone), context, on_improvement);
  Nanos best = std::numeric_limits<Nanos>::max();
  ImprovementCallback improved;
  if (on_improvement) {
    improved = [&](const JudgedPlan& plan) {
      if (plan.evaluation.iteration_time >= best) return;
      best = plan.evaluation.iteration_time;
      on_improvement(plan);
    };
  }
  SearchContext first(context, context.HalfTime());
  ASSIGN_OR_RETURN(PlanResponse whole,
                   solve(With(request, OptimizerSharding::kNone), first, improved));
  absl::StatusOr<PlanResponse> second =
      solve(With(request, OptimizerSharding::kStates), context, improved);
  std::optional<absl::StatusOr<PlanResponse>> third;
  if (second.ok() && !whole.best && !second->best && !context.Stopped())
    third = solve(With(request, OptimizerSharding::kGradients), context, improved);
  // Not before: the other searches would say that they were cut short.
  if (first.Stopped()) context.NoteStopped();
  ASSIGN_OR_RETURN(PlanResponse shared, std::move(second));
  PlanResponse answer = Faster(std::move(whole), std::move(shared));
  if (third.has_value()) {
    ASSIGN_OR_RETURN(PlanResponse with_gradients, *std::move(third));
    answer = Faster(std::move(answer), std::move(with_gradients));
    return answer;
  }
  RETURN_IF_ERROR(TryShared(request, context, answer));
  return answer;
}

}  // namespace stagewright
