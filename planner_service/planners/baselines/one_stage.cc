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

absl::StatusOr<Outcome> BestOneStage(const Problem& problem, const PlanOptions& options,
                                     const std::vector<std::vector<DeviceId>>& choices,
                                     const std::string& planner, SearchContext& context) {
  if (options.num_stages > 1) {
    return Infeasible(absl::StrCat("planner '", planner, "' makes one stage, but ",
                                   options.num_stages, " are asked for"));
  }
  const auto replicas = static_cast<int64_t>(choices.front().size());
  const auto sizes = MicroBatches(problem.mini_batch, options.micro_batch, replicas);
  if (sizes.empty()) {
    return Infeasible(absl::StrCat("a micro-batch of ", options.micro_batch,
                                   " samples gives not each of ", replicas,
                                   " replicas one; a larger one would"));
  }
  EvaluateOptions evaluate;
  evaluate.optimizer = problem.optimizer;
  Outcome outcome;
  Nanos best = std::numeric_limits<Nanos>::max();
  for (const std::vector<DeviceId>& devices : choices) {
    for (int64_t micro_batch : sizes) {
      if (context.Expired()) {
        outcome.termination = Termination::kLimit;
        outcome.reason = absl::StrCat("stopped after ", outcome.candidates, " candidates");
        return outcome;
      }
      Strategy strategy = OneStage(problem, devices, micro_batch);
      const auto evaluation =
          Evaluate(*problem.graph, *problem.cluster, *problem.costs, strategy, evaluate);
      ++outcome.states;
      ++outcome.candidates;
      if (absl::IsResourceExhausted(evaluation.status())) {
        outcome.reason = std::string(evaluation.status().message());
        continue;
      }
      RETURN_IF_ERROR(evaluation.status());
      if (evaluation->iteration_time >= best) continue;
      best = evaluation->iteration_time;
      outcome.strategy = std::move(strategy);
      if (context.on_improvement) context.on_improvement(*outcome.strategy);
    }
  }
  if (outcome.strategy) {
    outcome.termination = Termination::kFeasible;
    outcome.reason.clear();
  }
  return outcome;
}

}  // namespace stagewright
