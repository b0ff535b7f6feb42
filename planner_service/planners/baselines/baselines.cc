#include "planner_service/planners/baselines/baselines.h"

#include <algorithm>
#include <set>
#include <utility>

#include "planner_service/planners/baselines/fastest.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {
namespace {

class SinglePlanner : public Planner {
 public:
  std::string name() const override { return "single"; }
  std::string description() const override {
    return "everything on one device, with the best micro-batch size";
  }
  PlannerAbilities abilities() const override {
    return {.asynchronous = true, .several_stages = false};
  }
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    std::set<std::pair<int32_t, Bytes>> seen;
    std::vector<std::vector<DeviceId>> choices;
    for (int32_t d = 0; d < problem.cluster->size(); ++d) {
      const Device& device = problem.cluster->device(DeviceId(d));
      if (seen.insert({device.kind, device.memory}).second) choices.push_back({DeviceId(d)});
    }
    return BestOneStage(problem, options, choices, context);
  }
};

class DataParallelPlanner : public Planner {
 public:
  std::string name() const override { return "data-parallel"; }
  std::string description() const override {
    return "the whole model on every device, each with its share of the samples";
  }
  PlannerAbilities abilities() const override {
    return {.asynchronous = true, .several_stages = false, .without_replicas = false};
  }
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    const int64_t replicas = std::min<int64_t>(problem.cluster->size(),
                                               MostReplicas(problem, options, problem.mini_batch));
    std::vector<DeviceId> devices;
    for (int64_t d = 0; d < replicas; ++d) devices.push_back(DeviceId(d));
    return BestOneStage(problem, options, {devices}, context);
  }
};

}  // namespace

std::unique_ptr<Planner> MakeSinglePlanner() { return std::make_unique<SinglePlanner>(); }

std::unique_ptr<Planner> MakeDataParallelPlanner() {
  return std::make_unique<DataParallelPlanner>();
}

}  // namespace stagewright
