// The fastest that a pipeline can run if messages of different channels never shared a link and
// receives were posted at once: a timeline with private links (models/timeline.h), which bounds the
// simulated time from below.
#pragma once

#include <cstdint>
#include <vector>

#include "common/topology/cluster.h"
#include "planner_service/planners/exact/stage_times.h"

namespace stagewright {

// One assignment of operators to the stages of a layout.
struct PipelineCase {
  struct StageCase {
    std::vector<double> forward, backward;  // By replica, ns.
    bool has_backward = true;
    bool recompute = false;
    int64_t micro_batches_in_flight = 1;
    double update = 0;  // After its last backward pass: gradients summed and applied.
  };
  std::vector<StageCase> stages;
  std::vector<CostTable::Exchange> links;  // Stage numbers need not be in topological order.
  int64_t k = 1;
};

// Iteration time, ns; gives up with what it has once that exceeds `most`.
// O(p log p + m) for p passes and m messages.
double LeastPipelineTime(const Cluster& cluster, const StageTimes& times,
                         const PipelineCase& pipeline, double most);

}  // namespace stagewright
