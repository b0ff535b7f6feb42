// A layout with a micro-batch size, in numbers: what any operator adds to any stage.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/models/operator_costs.h"
#include "planner_service/planners/exact/layouts.h"

namespace stagewright {

inline constexpr int32_t kMostExactStages = 6;

// Times in ns, of one micro-batch.
struct StageTimes {
  struct Replica {
    DeviceId device;
    int32_t kind = 0;
    int64_t first = 0;  // Its share of samples [first, first + samples) of the micro-batch.
    int64_t samples = 0;
    const std::vector<OperatorTime>* times = nullptr;  // By operator, at least.
  };
  // Times and bytes of one stage, by operator.
  struct Row {
    std::vector<double> forward, backward;          // On the slowest replica.
    std::vector<double> least_forward, least_back;  // On the fastest.
    std::vector<double> device_time;                // Both passes, over all replicas.
    std::vector<double> update;                     // What each adds to the optimizer step.
    std::vector<Bytes> saved;                       // On the device of least memory.
    double step_overhead = 0;                       // Fixed cost of the optimizer step.

    // The optimizer step, on the fastest, of operators that add `sum` to it.
    double Step(double sum) const { return sum > 0 ? sum + step_overhead : 0; }
  };
  struct Wire {
    double latency = 0;  // Least over the pairs of replicas that exchange samples.
    double nanos_per_byte = 0;
    int64_t samples = 0;  // Least that one of those messages has.
  };

  std::vector<std::vector<Replica>> replicas;  // By stage.
  std::vector<Row> rows;                       // By stage.
  std::vector<std::vector<Wire>> wires;        // From stage, to stage.
  std::vector<Bytes> memory;                   // By stage: the smallest device's.
  std::vector<int64_t> least_samples;          // By stage: the share of that device.
  int64_t micro_batch = 1;
  int64_t micro_batches = 1;

  int32_t stages() const { return static_cast<int32_t>(replicas.size()); }
};

// REQUIRES: no stage has more devices than the micro-batch has samples.
StageTimes MakeStageTimes(const OperatorCosts& costs, const DeviceLayout& layout,
                          int64_t micro_batch);

// From the end of a last backward pass of `backward` to that of the update, at least: its sums may
// begin with that pass, its steps not before its end.
double LeastTail(double backward, double sum, double step);

// LeastAllReduceTime over `devices`. O(devices^2).
double LeastAllReduce(const Cluster& cluster, const std::vector<DeviceId>& devices, Bytes bytes);

}  // namespace stagewright
