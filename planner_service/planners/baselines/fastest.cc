#include "planner_service/planners/baselines/fastest.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/search/judge.h"
#include "planner_service/search/micro_batch_sizes.h"
#include "planner_service/search/one_stage.h"

namespace stagewright {
namespace {

// Why no micro-batch can be shared by so many replicas.
std::string WhyNoSize(const Problem& problem, const PlanOptions& options, int64_t replicas) {
  const SampleBounds bounds = problem.graph->samples();
  if (bounds == SampleBounds{}) {
    return absl::StrCat("a micro-batch of ", options.micro_batch, " samples gives not each of ",
                        replicas, " replicas one; a larger one would");
  }
  return absl::StrCat("no micro-batch gives each of ", replicas, " replicas ", bounds.least, " to ",
                      bounds.most, " samples, which the model takes at once");
}

Outcome Infeasible(std::string reason) {
  Outcome outcome;
  outcome.reason = std::move(reason);
  return outcome;
}

}  // namespace

absl::StatusOr<bool> Consider(const Problem& problem, Strategy strategy, SearchContext& context,
                              Nanos& best, Outcome& outcome, absl::Status& rejection) {
  context.Charge(EffortOfJudging(strategy));
  context.Spend(WorkOfJudging(strategy));
  ASSIGN_OR_RETURN(const Verdict verdict, SearchVerdictOn(problem, strategy));
  ++outcome.states;
  ++outcome.candidates;
  if (!verdict.rejection.ok()) {
    rejection = verdict.rejection;
    outcome.reason = std::string(rejection.message());
    return false;
  }
  if (*verdict.time >= best) return true;
  best = *verdict.time;
  outcome.strategy = std::move(strategy);
  if (context.on_improvement) context.on_improvement(*outcome.strategy);
  return true;
}

absl::StatusOr<Outcome> BestOneStage(const Problem& problem, const PlanOptions& options,
                                     const std::vector<std::vector<DeviceId>>& choices,
                                     SearchContext& context) {
  const auto replicas = static_cast<int64_t>(choices.front().size());
  std::vector<int64_t> sizes = MicroBatches(problem, options, replicas);
  std::reverse(sizes.begin(), sizes.end());
  if (sizes.empty()) return Infeasible(WhyNoSize(problem, options, replicas));
  Outcome outcome;
  Nanos best = std::numeric_limits<Nanos>::max();
  for (const std::vector<DeviceId>& devices : choices) {
    for (int64_t micro_batch : sizes) {
      if (context.Expired()) {
        SayStopped(outcome, absl::StrCat(outcome.candidates, " candidates"));
        return outcome;
      }
      // With one micro-batch in flight it saves no memory: only where the options ask for it.
      Strategy strategy = OneStage(problem, devices, micro_batch);
      strategy.stages[0].recompute = options.recompute == RecomputePolicy::kAlways;
      strategy.asynchronous = options.asynchronous;
      strategy.vertical_sync = options.vertical_sync;
      absl::Status rejection;
      RETURN_IF_ERROR(
          Consider(problem, std::move(strategy), context, best, outcome, rejection).status());
    }
  }
  if (outcome.strategy) {
    outcome.termination = Termination::kFeasible;
    outcome.reason.clear();
  }
  return outcome;
}

}  // namespace stagewright
