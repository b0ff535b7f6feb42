// All partitions of the operators into convex stages with an acyclic stage graph, for one layout
// and micro-batch size, as a tree that is cut where no partition below can beat the best one known.
//
// Operators are placed in topological order, each into a stage that is open or into the next one of
// the layout; so a partition and the order of its stages by smallest operator come up once. What is
// placed only grows: sums of times, edges between stages (a cycle stays one) and
//
//   head(i) = max over stages p that i reads from of head(p) + F(p) + message(p, i)
//   tail(i) = max over the same p that gets gradients back of
//             message(i, p) + B(p) + max(tail(p), update(p))
//   T >= head(i) + M (F(i) + B(i)) + max(tail(i), update(i))              for every stage i,
//   T * devices >= sum over stages of (devices of i) (head(i) + max(tail(i), update(i)))
//                  + device time of all operators, each that is not placed where it costs least,
//
// with F and B the passes of one micro-batch, M of them, and update(i) what the sum of gradients
// over the replicas, which may begin with the last B, and the optimizer step have left behind it.
// Both hold for any order of passes in which a device runs each micro-batch forward and backward
// once, in order.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "common/graph/dag.h"
#include "planner_service/planner/planner.h"
#include "planner_service/planners/exact/stage_times.h"

namespace stagewright {

class PartitionTree {
 public:
  // All outlive it.
  PartitionTree(const OperatorCosts& costs, const StageTimes& times, const SearchContext& context);

  // No partition is faster, ns.
  double Least() const;

  // Visited so far.
  int64_t nodes() const { return nodes_; }

  // Calls `leaf` with the stage of every operator for each partition that uses all stages and whose
  // bound is less than `best`, which the callee may lower meanwhile. False if `leaf` returned
  // false, `steps`, to which every node adds one, exceeds `most_steps`, or the context expired.
  // O(nodes * (operators + stages^2)).
  using Leaf = std::function<bool(const std::vector<int32_t>& stage_of)>;
  bool VisitLeaves(const double& best, int64_t most_steps, int64_t& steps, const Leaf& leaf);

 private:
  // A stage in the making.
  struct Open {
    double forward = 0, backward = 0;              // Slowest replica, one micro-batch.
    double least_forward = 0, least_backward = 0;  // Fastest replica.
    double device_time = 0;                        // All replicas, all micro-batches.
    double update = 0;
    Bytes resident = 0;
    Bytes saved = 0;
    Bytes gradients = 0;
    uint32_t reads = 0;         // Stages that it reads from.
    uint32_t gradients_to = 0;  // Stages that it sends gradients back to.
    uint32_t reaches = 0;       // Stages that come after it, directly or not.
  };
  struct State {
    std::array<Open, kMostExactStages> stages;
    // Bytes per sample of messages, by producer and consumer.
    std::array<std::array<Bytes, kMostExactStages>, kMostExactStages> bytes = {};
    int32_t open = 0;
  };

  bool Place(int32_t position, const State& state);
  bool Add(int32_t op, int32_t stage, State& state) const;
  double Bound(int32_t placed, const State& state) const;

  const Dag& dag_;
  const Cluster& cluster_;
  const OperatorCosts& costs_;
  const StageTimes& times_;
  const SearchContext& context_;
  double devices_ = 0;
  std::vector<double> rest_;  // By position: device time of the operators from it on, at least.
  std::vector<std::vector<std::pair<int32_t, bool>>> values_of_;  // By consumer: value, gradient.
  std::vector<std::vector<DeviceId>> layout_;
  std::vector<int32_t> stage_of_;
  const double* best_ = nullptr;
  int64_t most_steps_ = 0;
  int64_t* steps_ = nullptr;
  int64_t nodes_ = 0;
  const Leaf* leaf_ = nullptr;
};

}  // namespace stagewright
