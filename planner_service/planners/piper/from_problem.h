// Piper's view of our inputs.
#pragma once

#include <cstdint>

#include "planner_service/models/operator_costs.h"
#include "planner_service/planner/planner.h"
#include "planner_service/planners/piper/objective.h"

namespace stagewright {

// A profile that was made for Piper, as the original reads it: every configuration of every node
// (ProfiledCost::configurations), times in ns. A sample of the graph is a micro-batch of Piper's.
struct PiperMachine {
  int32_t devices = 1;
  Bytes memory = 0;
  double bytes_per_second = 0;
  int64_t micro_batches = 1;
};
// REQUIRES: every node has a profiled cost. Nodes without configurations have one: their own cost.
PiperProblem PiperProblemOfProfile(const Graph& graph, const PiperMachine& machine);

// Any problem of ours, for shares of `samples` samples: times of the slowest kind of device in ns,
// memory by the evaluator's rules but for workspace, `memory_share` of the smallest device, the
// mean bandwidth of the cluster. A stage recomputes as a whole: then it keeps its inputs, and the
// rest once.
PiperProblem PiperProblemOf(const OperatorCosts& costs, int64_t samples, double memory_share,
                            RecomputePolicy policy);

}  // namespace stagewright
