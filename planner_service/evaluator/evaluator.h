// The judge: checks any strategy (validity, memory, deadlock freedom) and times it, whoever made
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "common/lowering/receive_posting.h"
#include "common/program/program.h"
#include "common/strategy/strategy.h"
#include "common/topology/cluster.h"
#include "planner_service/simulator/simulator.h"

namespace stagewright {

struct StageReport {
  Nanos compute_per_micro_batch = 0;  // Forward + backward of the slowest replica.
  // TPS: compute per sample of a micro-batch + the gradient sum per sample of the mini-batch.
  double seconds_per_sample = 0;
  Bytes peak_memory = 0;  // Largest over its devices, whatever else runs there included.
  int64_t in_flight = 0;  // Most samples between forward and backward, over its replicas together.
};

struct Evaluation {
  Nanos iteration_time = 0;
  double samples_per_second = 0;
  int32_t depth = 0;        // Vertices on the longest path of the stage graph.
  double bubble_ratio = 0;  // 1 - busy time / (iteration time * devices used).
  std::vector<StageReport> stages;
  // In Program::devices order. Peak memory is the larger of what the simulation finds and what
  // Validate's instantaneous run finds, so that a budget holds whatever the real overlap.
  std::vector<DeviceUse> devices;
  Simulation simulation;  // With timeline if requested.
  Program program;
};

struct EvaluateOptions {
  Optimizer optimizer = Optimizer::kAdam;
  bool timeline = false;
  bool gradient_norm = false;  // See LowerOptions.
  ReceivePosting posting = {};
  // Asked now and then, in a long evaluation every few hundredths of a second: true ends it.
  std::function<bool()> stop;
  // Without what is for answers only, a fifth of the work: the proof by Validate(), `depth`,
  // `bubble_ratio` and `stages`. What deadlocks or needs too much memory is refused all the same.
  bool brief = false;
};

// CANCELLED if `stop` says so. FAILED_PRECONDITION names the broken condition (C1-C4), or a tensor
// that the strategy would have to split and cannot, RESOURCE_EXHAUSTED the device over its memory,
// by how much, what dominates there and what would help. O(actions log actions).
absl::StatusOr<Evaluation> Evaluate(const Graph& graph, const Cluster& cluster,
                                    const CostModel& costs, const Strategy& strategy,
                                    const EvaluateOptions& options);

}  // namespace stagewright
