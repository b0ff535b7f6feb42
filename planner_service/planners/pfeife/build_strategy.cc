#include "planner_service/planners/pfeife/build_strategy.h"

#include <algorithm>
#include <utility>

#include "common/policies/execution.h"
#include "common/policies/looped.h"
#include "common/strategy/orders.h"
#include "planner_service/models/draft.h"

namespace stagewright::pfeife {
namespace {

// B_f by device id such that LoopedOrders warms up as the shape does: it counts from the depth in
// the stage graph, which parallel slices make smaller than the number of slices.
std::vector<int64_t> Prefetch(const Pipeline& pipeline, const std::vector<int32_t>& devices,
                              const LoopedShape& shape) {
  std::vector<int64_t> prefetch;
  for (const auto& [device, stages] : pipeline.devices) {
    const auto at = std::find(devices.begin(), devices.end(), device.value()) - devices.begin();
    int32_t depth = pipeline.depth;
    for (StageId stage : stages) {
      if (!pipeline.stages[stage.index()].has_backward) continue;
      depth = std::min(depth, pipeline.stages[stage.index()].depth);
    }
    const int64_t least = (static_cast<int64_t>(stages.size()) - 1) * shape.loop_batch + depth;
    prefetch.push_back(std::max<int64_t>(0, shape.warm_up[at] - least));
  }
  return prefetch;
}

}  // namespace

absl::StatusOr<Strategy> BuildStrategy(const ChainModel& model, const std::vector<int32_t>& cuts,
                                       const std::vector<int32_t>& devices,
                                       const LoopedShape& shape, StrategyKind kind) {
  const Problem& problem = model.costs().problem();
  Draft draft;
  draft.kind = kind;
  draft.micro_batch = model.samples();
  for (int32_t s = 0; s < shape.slices(); ++s) {
    DraftStage& stage = draft.stages.emplace_back();
    stage.operators.assign(model.order().begin() + cuts[s], model.order().begin() + cuts[s + 1]);
    std::sort(stage.operators.begin(), stage.operators.end());
    stage.devices = {devices[shape.device_of(s)]};
    stage.recompute = model.recompute();
  }
  Strategy strategy = ToStrategy(problem, draft);
  ASSIGN_OR_RETURN(const Pipeline pipeline, MakePipeline(*problem.graph, strategy));
  LoopedSchedule schedule;
  schedule.loop_batch = shape.loop_batch;
  schedule.prefetch = Prefetch(pipeline, devices, shape);
  ASSIGN_OR_RETURN(auto orders, LoopedOrders(*problem.graph, strategy, schedule));
  SetOrders(*problem.graph, std::move(orders), strategy);
  return strategy;
}

}  // namespace stagewright::pfeife
