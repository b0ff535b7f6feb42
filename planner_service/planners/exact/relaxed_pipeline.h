// The fastest that a pipeline can run if every message had its links for itself and were taken the
// moment it arrives: the longest path through its passes and messages.
//
// Passes of a device run in the order of its schedule, and every message lasts at least as long in
// the simulator, which shares links and waits for both ends to meet. Orders are fixed, so nothing
// can finish earlier there than here: the answer bounds the simulated time from below.
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
    int64_t in_flight = 1;  // Micro-batches.
    double update = 0;      // After its last backward pass: gradients summed and applied.
  };
  std::vector<StageCase> stages;
  std::vector<CostTable::Exchange> links;  // Stage numbers need not be in topological order.
  int64_t k = 1;
};

class RelaxedPipeline {
 public:
  explicit RelaxedPipeline(const Cluster& cluster) : cluster_(cluster) {}

  // Iteration time, ns; gives up with what it has once that exceeds `most`.
  // O(micro-batches * (replicas + messages)).
  double Run(const StageTimes& times, const PipelineCase& pipeline, double most);

 private:
  struct Channel {
    int32_t from = 0;  // Unit.
    int32_t to = 0;
    double there = 0;  // Time of one message.
    double back = 0;
    bool gradient = false;
    double last_there = 0;  // When the last one arrived.
    double last_back = 0;
  };
  struct Unit {
    int32_t stage = 0;
    double forward = 0;
    double backward = 0;
    double now = 0;
    int64_t forwards = 0;
    int64_t backwards = 0;
    int64_t in_round = 0;  // Passes of the current run of k backward or forward passes.
    bool turning_back = false;
    std::vector<int32_t> in, out;  // Channels.
    std::vector<double> forward_end, backward_end;
  };

  void Prepare(const StageTimes& times, const PipelineCase& pipeline);
  bool WantsBackward(const Unit& unit, const PipelineCase& pipeline) const;
  bool Advance(Unit& unit, const PipelineCase& pipeline);

  const Cluster& cluster_;
  int64_t micro_batches_ = 1;
  std::vector<Unit> units_;
  std::vector<Channel> channels_;
};

}  // namespace stagewright
