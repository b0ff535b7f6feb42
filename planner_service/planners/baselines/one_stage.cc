#include "planner_service/planners/baselines/one_stage.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/evaluator/evaluator.h"

namespace stagewright {
namespace {

// Divisors of the mini-batch of at least `least`, or the forced size alone; largest first.
std::vector<int64_t> MicroBatches(int64_t mini_batch, int64_t forced, int64_t least) {
  std::vector<int64_t> sizes;
  for (int64_t parts = 1; parts <= mini_batch / least; ++parts) {
    if (mini_batch % parts != 0) continue;
    if (forced == 0 || forced == mini_batch / parts) sizes.push_back(mini_batch / parts);
  }
  return sizes;
}

Outcome Infeasible(std::string reason) {
  Outcome outcome;
  outcome.reason = std::move(reason);
  return outcome;
}

}  // namespace

Strategy OneStage(const Problem& problem, const std::vector<DeviceId>& devices,
                  int64_t micro_batch) {
  Stage stage;
  for (int32_t node : problem.graph->dag().order()) {
    if (problem.operators->owner(NodeId(node)).valid()) stage.nodes.push_back(NodeId(node));
  }
  stage.replicated = ReplicatedInto(*problem.graph, *problem.operators, stage.nodes);
  stage.micro_batch = micro_batch;
  stage.devices = devices;
  stage.schedule = {micro_batch, 1};
  Strategy strategy;
  strategy.mini_batch = problem.mini_batch;
  strategy.stages = {std::move(stage)};
  return strategy;
}

absl::StatusOr<bool> Offer(const Problem& problem, Strategy strategy, SearchContext& context,
                           Nanos& best, Outcome& outcome) {
  context.Charge(EffortOfJudging(strategy));
  EvaluateOptions options;
  options.optimizer = problem.optimizer;
  const auto evaluation =
      Evaluate(*problem.graph, *problem.cluster, *problem.costs, strategy, options);
  ++outcome.states;
  ++outcome.candidates;
  if (absl::IsResourceExhausted(evaluation.status())) {
    outcome.reason = std::string(evaluation.status().message());
    return false;
  }
  RETURN_IF_ERROR(evaluation.status());
  if (evaluation->iteration_time >= best) return true;
  best = evaluation->iteration_time;
  outcome.strategy = std::move(strategy);
  if (context.on_improvement) context.on_improvement(*outcome.strategy);
  return true;
}

absl::StatusOr<Outcome> BestOneStage(const Problem& problem, const PlanOptions& options,
                                     const std::vector<std::vector<DeviceId>>& choices,
                                     SearchContext& context) {
  const auto replicas = static_cast<int64_t>(choices.front().size());
  const auto sizes = MicroBatches(problem.mini_batch, options.micro_batch, replicas);
  if (sizes.empty()) {
    return Infeasible(absl::StrCat("a micro-batch of ", options.micro_batch,
                                   " samples gives not each of ", replicas,
                                   " replicas one; a larger one would"));
  }
  Outcome outcome;
  Nanos best = std::numeric_limits<Nanos>::max();
  for (const std::vector<DeviceId>& devices : choices) {
    for (int64_t micro_batch : sizes) {
      if (context.Expired()) {
        outcome.termination = Termination::kLimit;
        outcome.reason = absl::StrCat("stopped after ", outcome.candidates, " candidates");
        return outcome;
      }
      // With one micro-batch in flight it saves no memory: only where the options ask for it.
      Strategy strategy = OneStage(problem, devices, micro_batch);
      strategy.stages[0].recompute = options.recompute == RecomputePolicy::kAlways;
      strategy.asynchronous = options.asynchronous;
      strategy.vertical_sync = options.vertical_sync;
      RETURN_IF_ERROR(Offer(problem, std::move(strategy), context, best, outcome).status());
    }
  }
  if (outcome.strategy) {
    outcome.termination = Termination::kFeasible;
    outcome.reason.clear();
  }
  return outcome;
}

}  // namespace stagewright
