// An execution of a strategy step by step, without a clock: which steps can run, given those that
// have. What the policies build their orders with.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/strategy/strategy.h"

namespace stagewright {

// Stages of equal micro-batches and what policies ask of them.
struct Pipeline {
  struct Node {
    std::vector<DeviceId> devices;
    std::vector<StageId> before, after;  // Neighbours in the stage graph.
    std::vector<StageId> gradients;      // Those of `after` that have a backward pass.
    bool has_backward = true;
    bool recompute = false;
    int32_t depth = 1;  // Stages on the longest path to a sink, itself included.
  };
  int64_t micro_batches = 1;
  std::vector<Node> stages;
  std::map<DeviceId, std::vector<StageId>> devices;  // Those in use; stages ascending.
  int32_t depth = 1;                                 // The depth of the whole graph.
};

// FAILED_PRECONDITION names the stage whose micro-batch differs from stage 0's. REQUIRES: devices,
// micro-batches and edges as CheckStrategy asks.
absl::StatusOr<Pipeline> MakePipeline(const Graph& graph, const Strategy& strategy);

class Execution {
 public:
  explicit Execution(const Pipeline& pipeline);

  // The next micro-batch of a pass of a stage on a device.
  int64_t Next(StageId stage, DeviceId device, Pass pass) const;
  // Whether it can run: everything it reads is there. False after the last micro-batch.
  bool Ready(StageId stage, DeviceId device, Pass pass) const;
  // Micro-batches that all replicas have done; backward: whole, or their input half.
  int64_t Done(StageId stage, bool forward) const;
  // REQUIRES: Ready for the step's pass, and the step is the next of it.
  void Run(DeviceId device, const ComputeStep& step);

 private:
  using Counts = std::array<int64_t, static_cast<size_t>(kLastPass) + 1>;
  size_t Replica(StageId stage, DeviceId device) const;
  const Pipeline& pipeline_;
  std::vector<std::vector<Counts>> counts_;  // By stage and replica: steps done.
};

// Orders of an execution in which every device keeps to its proposed order as long as it can. Where
// that would deadlock, a device takes the first of its proposed steps that can run. REQUIRES: the
// proposals satisfy CheckOrders. O(steps), and O(steps) for every step taken early.
std::vector<DeviceOrder> MakeRunnable(const Pipeline& pipeline, std::vector<DeviceOrder> proposals);

}  // namespace stagewright
