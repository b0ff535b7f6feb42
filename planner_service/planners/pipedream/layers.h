// What the recurrence needs of a planning problem: layers with costs, a network, memory limits.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/models/stage_oracle.h"
#include "planner_service/planners/pipedream/recurrence.h"

namespace stagewright::pipedream {

// Of an imported profile: one layer per node, one mini-batch as profiled.
// REQUIRES: every node of `graph` has a profiled cost.
LayerProfile ProfileOf(const Graph& graph);

// Operators of a problem as layers; layer p is position p of the oracle's order.
class Layers {
 public:
  // The oracle outlives it. O(values + edges).
  explicit Layers(const StageOracle& oracle);

  const Dag& dag() const { return dag_; }
  const std::vector<double>& output_per_sample() const { return output_; }

  // By layer, for mini-batches of `samples` samples on up to `machines` machines.
  StateCosts CostsOf(const States& states, int64_t samples, int32_t machines) const;
  // `asynchronous`: a version of the parameters for every mini-batch in flight. `share` of the
  // devices' memory may be used.
  MemoryLimits MemoryOf(const States& states, int64_t samples, bool asynchronous,
                        double share) const;

 private:
  std::vector<double> SecondsOf(int64_t samples) const;

  const StageOracle& oracle_;
  Dag dag_;
  std::vector<double> output_;      // Bytes per sample that other layers read.
  std::vector<double> parameters_;  // Gradient bytes.
  std::vector<double> resident_;
};

// The levels of a cluster: its devices with the slowest route between any two, and, if it has
// several nodes of equally many devices, the devices of a node and the nodes.
std::vector<Level> FlatLevels(const Cluster& cluster);
std::vector<Level> HierarchicalLevels(const Cluster& cluster);  // Empty if there is no hierarchy.

}  // namespace stagewright::pipedream
