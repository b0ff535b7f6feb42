#include "planner_service/planners/auto/champions.h"

#include "planner_service/evaluator/evaluator.h"

namespace stagewright {
namespace {

// A strategy of one stage is a pipeline of either kind.
bool IsSequential(const Strategy& strategy) {
  return strategy.kind == StrategyKind::kSequential || strategy.stages.size() == 1;
}

}  // namespace

Champions::Champions(const Problem& problem, const PlanOptions& options, SearchContext& context)
    : problem_(problem), options_(options), context_(context) {}

absl::StatusOr<bool> Champions::Offer(const Strategy& strategy) {
  ++judged_;
  EvaluateOptions evaluate;
  evaluate.optimizer = problem_.optimizer;
  const absl::StatusOr<Evaluation> evaluation =
      Evaluate(*problem_.graph, *problem_.cluster, *problem_.costs, strategy, evaluate);
  if (absl::IsResourceExhausted(evaluation.status()) ||
      absl::IsFailedPrecondition(evaluation.status())) {
    rejection_ = std::string(evaluation.status().message());
    return false;
  }
  RETURN_IF_ERROR(evaluation.status());
  const Nanos time = evaluation->iteration_time;
  const bool sequential = IsSequential(strategy);
  if (sequential && (!sequential_.has_value() || time < sequential_time_)) {
    sequential_ = strategy;
    sequential_->kind = StrategyKind::kSequential;
    sequential_time_ = time;
  }
  if (options_.sequential && !sequential) return true;
  if (best_.has_value() && time >= best_time_) return true;
  best_ = options_.sequential ? *sequential_ : strategy;
  best_time_ = time;
  if (context_.on_improvement) context_.on_improvement(*best_);
  return true;
}

}  // namespace stagewright
