// The judge: checks any strategy (validity, memory, deadlock freedom) and times it, whoever made
// it.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/graph/operator_graph.h"
#include "common/schedule/program.h"
#include "common/strategy/strategy.h"
#include "planner_service/simulator/simulator.h"

namespace stagewright {

struct StageReport {
  Nanos compute_per_micro_batch = 0;  // Forward + backward of the slowest replica.
  double seconds_per_sample =
      0;  // TPS: (compute + its share of the gradient sum) per sample of the mini-batch.
  Bytes peak_memory = 0;  // Largest over its devices.
  int64_t in_flight = 0;  // Most samples between forward and backward, over its replicas together.
};

struct Evaluation {
  Nanos iteration_time = 0;
  double samples_per_second = 0;
  int32_t depth = 0;        // Vertices on the longest path of the stage graph.
  double bubble_ratio = 0;  // 1 - busy time / (iteration time * devices used).
  std::vector<StageReport> stages;
  std::vector<DeviceUse> devices;
  Simulation simulation;  // With timeline if requested.
  Program program;
};

struct EvaluateOptions {
  Optimizer optimizer = Optimizer::kAdam;
  bool timeline = false;
};

// FAILED_PRECONDITION names the broken condition (C1-C4), RESOURCE_EXHAUSTED the device over its
// memory, by how much, and what would help.
absl::StatusOr<Evaluation> Evaluate(const Graph& graph, const Cluster& cluster,
                                    const CostModel& costs, const Strategy& strategy,
                                    const EvaluateOptions& options);

// A bound on the iteration time from below, over all strategies for these devices: total work over
// devices, the critical path of one sample's share, and the largest indivisible operator. In
// nanoseconds.
Nanos LowerBound(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
                 const CostModel& costs, int64_t mini_batch);

}  // namespace stagewright
