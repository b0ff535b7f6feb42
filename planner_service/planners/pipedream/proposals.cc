#include "planner_service/planners/pipedream/proposals.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/planners/baselines/one_stage.h"
#include "planner_service/planners/graphpipe/infeasible.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {

std::vector<Proposal> OneStageProposals(const StageOracle& oracle, const PlanOptions& options) {
  const Problem& problem = oracle.problem();
  std::vector<Proposal> proposals;
  if (options.num_stages > 1) return proposals;
  std::vector<int64_t> sizes = MicroBatchSizes(problem, options, Rounding::kDown);
  std::reverse(sizes.begin(), sizes.end());
  const auto all = static_cast<int32_t>(std::min<int64_t>(
      problem.cluster->size(), MostReplicas(problem, options, problem.mini_batch)));
  for (int32_t replicas = 1; replicas <= all; replicas = replicas < all ? all : all + 1) {
    if (replicas > 1 && !options.allow_replicas) break;
    std::vector<DeviceId> devices;
    for (int32_t d = 0; d < replicas; ++d) devices.push_back(DeviceId(d));
    for (int64_t size : sizes) {
      const StageOracle::Flow flow{(size + replicas - 1) / replicas, 1, problem.mini_batch / size};
      if (MostReplicas(problem, options, size) < replicas) continue;
      if (oracle.Memory(0, oracle.size(), flow) > oracle.budget()) continue;
      Proposal proposal;
      proposal.strategy = OneStage(problem, devices, size);
      proposal.strategy.asynchronous = options.asynchronous;
      proposal.strategy.vertical_sync = options.vertical_sync;
      proposal.text = absl::StrCat("b", size, " one stage x", replicas);
      proposals.push_back(std::move(proposal));
      break;
    }
  }
  return proposals;
}

absl::StatusOr<Outcome> SearchViews(const std::string& planner, const Problem& problem,
                                    const PlanOptions& options, SearchContext& context,
                                    const ViewSearch& search) {
  return SearchViews(planner, problem, options, context, ImpossibleOptions, search);
}

}  // namespace stagewright
