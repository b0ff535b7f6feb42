// Plans that cut a graph at chosen nodes, and jobs of them in one process.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/strategy/strategy.h"
#include "tests/worker_daemon/support/local_training.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {

// The nodes after those of the stage before it, up to and including `last`.
struct HandStage {
  int last = 0;
  int64_t micro_batch = 1;
  int replicas = 1;
  bool recompute = false;
};

// Each stage on devices of its own. REQUIRES: the graph's nodes are numbered in an order in which
// they can run.
Strategy PlanByHand(const Graph& graph, int64_t mini_batch, const std::vector<HandStage>& stages);

// PlanByHand as zero-bubble H1: with split backward passes. REQUIRES: equal micro-batches.
Strategy SplitByHand(const Graph& graph, int64_t mini_batch, const std::vector<HandStage>& stages);

// A job with SGD of rate 0.1 on data of these tensors, in their order, that evaluates on them, too.
// Its files are named by the running test.
class HandJob {
 public:
  HandJob(Graph graph, const std::map<std::string, at::Tensor>& data, int64_t steps);

  // What training gives under a plan.
  absl::StatusOr<TrainingResult> Train(const Strategy& strategy) const;

  DeviceJob spec;
};

// Losses and parameters of two jobs agree to `tolerance`, relatively.
void ExpectSame(const TrainingResult& found, const TrainingResult& expected,
                double tolerance = 1e-9);

}  // namespace stagewright::testing
