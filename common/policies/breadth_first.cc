#include "common/policies/breadth_first.h"

#include <algorithm>

#include "common/policies/execution.h"
#include "common/policies/looped.h"

namespace stagewright {

absl::StatusOr<std::vector<DeviceOrder>> BreadthFirstOrders(const Graph& graph,
                                                            const Strategy& strategy) {
  LoopedSchedule schedule;
  for (const Stage& stage : strategy.stages)
    schedule.loop_batch = std::max(schedule.loop_batch, strategy.mini_batch / stage.micro_batch);
  ASSIGN_OR_RETURN(const Pipeline pipeline, MakePipeline(graph, strategy));
  schedule.prefetch.assign(pipeline.devices.size(), schedule.loop_batch);
  return LoopedOrders(graph, strategy, schedule);
}

}  // namespace stagewright
