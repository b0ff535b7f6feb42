// The condition under which DRL-PP's paper measures: a worker computes one mini-batch of the
// profile at a time and updates its weights after it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/status.h"
#include "common/strategy/strategy.h"
#include "planner_service/planner/planner.h"
#include "planner_service/planners/drl_pp/reward.h"

namespace stagewright {

// A sample is a profiled mini-batch: no more of them at a time than a stage has replicas.
inline bool OneProfiledBatchAtATime(const Strategy& strategy) {
  size_t replicas = 1;
  for (const Stage& stage : strategy.stages) replicas = std::max(replicas, stage.devices.size());
  return strategy.stages[0].micro_batch <= static_cast<int64_t>(replicas);
}

// What such a strategy takes by simulation; OUT_OF_RANGE for others.
inline MeasureStrategy MeasureProfiledBatches(const Problem& problem) {
  return
      [simulated = SimulatedSeconds(problem)](const Strategy& strategy) -> absl::StatusOr<double> {
        if (OneProfiledBatchAtATime(strategy)) return simulated(strategy);
        return absl::OutOfRangeError("more than one profiled mini-batch at a time");
      };
}

}  // namespace stagewright
