#include "planner_service/front_door/check_unplaced.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/lowering/lower.h"
#include "common/strategy/check_strategy.h"
#include "common/validation/validate.h"
#include "planner_service/front_door/check_request.h"
#include "planner_service/front_door/planner_table.h"
#include "planner_service/front_door/request_costs.h"
#include "planner_service/front_door/split_plans.h"

namespace stagewright {
namespace {

constexpr char kManualField[] = "options.manual";
constexpr char kGiven[] = "strategy";
// Programs up to so many passes are proven at once.
constexpr int64_t kMostPasses = 65'536;

template <typename... What>
absl::Status Invalid(absl::string_view field, const What&... what) {
  return WithField(absl::InvalidArgumentError(absl::StrCat(field, ": ", what...)), field);
}

// The request on its graphs with the operators cut. `graphs` is what it refers to.
absl::StatusOr<PlanRequest> Cut(const PlanRequest& request,
                                const std::vector<OperatorSplit>& splits,
                                std::shared_ptr<const SplitGraphs>& graphs) {
  if (splits.empty()) return request;
  ASSIGN_OR_RETURN(graphs, SplitGraphsOf(request, splits));
  return RequestFor(request, *graphs);
}

int64_t PassesOf(const Strategy& strategy) {
  int64_t passes = 0;
  for (const Stage& stage : strategy.stages) {
    passes += strategy.mini_batch / stage.micro_batch * static_cast<int64_t>(stage.devices.size());
  }
  return passes;
}

// REQUIRES: CheckStrategy is OK.
absl::Status CheckRuns(const PlanRequest& request, const Strategy& strategy) {
  if (PassesOf(strategy) > kMostPasses) return absl::OkStatus();
  LowerOptions options;
  options.optimizer = request.optimizer;
  const std::unique_ptr<CostModel> costs = MakeCosts(request, *request.graph);
  ASSIGN_OR_RETURN(const Program program, Lower(*request.graph, strategy, *costs, options));
  return Validate(program, {});
}

absl::StatusOr<bool> CheckGiven(const PlanRequest& request, const Strategy& strategy,
                                int32_t devices) {
  if (strategy.mini_batch != request.mini_batch) {
    return Invalid("mini_batch", "is ", request.mini_batch, ", but the strategy is for ",
                   strategy.mini_batch);
  }
  std::shared_ptr<const SplitGraphs> graphs;
  const absl::StatusOr<PlanRequest> cut = Cut(request, strategy.splits, graphs);
  absl::Status wrong = cut.status();
  if (wrong.ok())
    wrong = CheckStrategy(*cut->graph, devices > 0 ? devices : Cluster::kMostDevices, strategy);
  if (wrong.ok()) wrong = CheckRuns(*cut, strategy);
  if (!wrong.ok()) return Invalid(kGiven, wrong.message());
  return strategy.asynchronous;
}

absl::StatusOr<bool> CheckManual(const PlanRequest& request, int32_t devices) {
  Problem problem;
  problem.graph = request.graph;
  problem.mini_batch = request.mini_batch;
  problem.optimizer = request.optimizer;
  problem.batch_statistics = request.options.batch_statistics;
  problem.bucket_bytes = request.options.bucket_bytes;
  problem.optimizer_sharding =
      request.options.optimizer_sharding.value_or(OptimizerSharding::kNone);
  ASSIGN_OR_RETURN(const Strategy strategy, ReadManualPlan(problem, request.options.manual));
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    for (const DeviceId device : strategy.stages[s].devices) {
      if (devices > 0 && device.value() >= devices && device.value() < Cluster::kMostDevices) {
        return Invalid(kManualField, "stages[", s, "].devices has ", device.value(),
                       "; there are devices 0 to ", devices - 1);
      }
    }
  }
  // Whether a stage of nodes that may be recomputed has any of its own, the devices decide.
  if (std::any_of(strategy.stages.begin(), strategy.stages.end(),
                  [](const Stage& stage) { return stage.nodes.empty(); }))
    return strategy.asynchronous;
  absl::Status wrong = CheckStrategy(*request.graph, 2 * Cluster::kMostDevices, strategy);
  // How much is in flight without orders may depend on which nodes are recomputed.
  if (wrong.ok() && !strategy.orders.empty()) wrong = CheckRuns(request, strategy);
  if (!wrong.ok()) return Invalid(kManualField, wrong.message());
  return strategy.asynchronous;
}

}  // namespace

absl::StatusOr<bool> CheckUnplaced(const PlanRequest& request, const Strategy* given,
                                   int32_t devices) {
  RETURN_IF_ERROR(CheckMiniBatch(request.mini_batch));
  if (given != nullptr) return CheckGiven(request, *given, devices);
  RETURN_IF_ERROR(CheckOptions(request));
  if (!request.planner.empty()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Planner> planner, MakePlanner(request.planner));
    RETURN_IF_ERROR(CheckAbilities(request.options, request.planner, planner->abilities()));
  }
  std::shared_ptr<const SplitGraphs> graphs;
  ASSIGN_OR_RETURN(const PlanRequest cut, Cut(request, request.options.splits, graphs));
  if (request.planner == kManualPlanner) return CheckManual(cut, devices);
  return request.options.asynchronous;
}

}  // namespace stagewright
