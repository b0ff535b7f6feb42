#include "planner_service/search/one_stage.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/models/stage_maker.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {
namespace {

std::optional<OneStageChoice> LargestThatFits(const StageOracle& oracle, const PlanOptions& options,
                                              RecomputePolicy policy, int32_t replicas) {
  const Problem& problem = oracle.problem();
  std::vector<int64_t> sizes = MicroBatchSizes(problem, options, Rounding::kDown);
  std::reverse(sizes.begin(), sizes.end());
  for (const bool recompute : {false, true}) {
    if (policy == (recompute ? RecomputePolicy::kNever : RecomputePolicy::kAlways)) continue;
    for (int64_t size : sizes) {
      if (MostReplicas(problem, options, size) < replicas) continue;
      const StageOracle::Flow flow{(size + replicas - 1) / replicas, 1, problem.mini_batch / size,
                                   recompute, replicas};
      if (oracle.Memory(0, oracle.size(), flow) > oracle.budget()) continue;
      return OneStageChoice{replicas, size, recompute};
    }
  }
  return std::nullopt;
}

}  // namespace

Strategy OneStage(const Problem& problem, const std::vector<DeviceId>& devices,
                  int64_t micro_batch) {
  Stage stage = StageMaker(problem).Make(ModelOrder(problem));
  stage.micro_batch = micro_batch;
  stage.devices = devices;
  stage.schedule = {micro_batch, 1};
  Strategy strategy = EmptyStrategy(problem, StrategyKind::kGraph);
  strategy.stages = {std::move(stage)};
  return strategy;
}

std::vector<OneStageChoice> OneStageChoices(const StageOracle& oracle, const PlanOptions& options,
                                            RecomputePolicy recompute) {
  std::vector<OneStageChoice> choices;
  if (options.num_stages > 1) return choices;
  const Problem& problem = oracle.problem();
  const auto all = static_cast<int32_t>(std::min<int64_t>(
      problem.cluster->size(), MostReplicas(problem, options, problem.mini_batch)));
  if (const auto one = LargestThatFits(oracle, options, recompute, 1)) choices.push_back(*one);
  if (all == 1) return choices;
  if (const auto many = LargestThatFits(oracle, options, recompute, all)) choices.push_back(*many);
  return choices;
}

std::vector<Proposal> OneStageProposals(const StageOracle& oracle, const PlanOptions& options) {
  std::vector<Proposal> proposals;
  for (const OneStageChoice& choice : OneStageChoices(oracle, options, RecomputePolicy::kNever)) {
    std::vector<DeviceId> devices;
    for (int32_t d = 0; d < choice.replicas; ++d) devices.push_back(DeviceId(d));
    Proposal proposal;
    proposal.strategy = OneStage(oracle.problem(), devices, choice.micro_batch);
    proposal.strategy.asynchronous = options.asynchronous;
    proposal.strategy.vertical_sync = options.vertical_sync;
    proposal.text = absl::StrCat("b", choice.micro_batch, " one stage x", choice.replicas);
    proposals.push_back(std::move(proposal));
  }
  return proposals;
}

}  // namespace stagewright
