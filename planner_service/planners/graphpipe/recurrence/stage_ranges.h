// The ranges of a linear order that may become stages, with what does not depend on a search's
// target: their extents and what their members' predecessors see beyond them. Filled on demand and
// shared by all searches over one order.
//
// Short ranges are all there. Of longer ones, only those whose begin is a multiple of a step that
// keeps the number of lengths logarithmic: a stage of 200 operators may begin at every fourth. So a
// search over n operators looks at O(n log n) ranges, whatever the length of a stage.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/models/frontier.h"
#include "planner_service/models/stage_oracle.h"

namespace stagewright {

// Rates of the network of a cluster, as far as searches ask. O(devices^2).
struct NetworkFacts {
  explicit NetworkFacts(const Cluster& cluster);

  double fastest = 0;     // Rate of the fastest route, bytes per ns; 0: one device.
  double slowest = 0;     // Rate of the slowest route, bytes per ns; infinity: one device.
  int32_t node_size = 1;  // Devices of the largest node.
  int32_t nodes = 1;      // As many of that size as the devices fill.
  struct Sum {
    double latency = 0;   // ns.
    double per_byte = 0;  // ns per byte.
  };
  std::vector<Sum> sums;  // Gradient sum over the first 2^index devices.
};

class StageRanges {
 public:
  // Ranges of at most this many operators are complete.
  static constexpr int32_t kDense = 96;

  struct Range {
    int32_t begin = 0;
    StageOracle::Extent extent;
  };

  // Arguments outlive the ranges; `frontier` belongs to the oracle's order.
  StageRanges(const StageOracle& oracle, const Frontier& frontier);

  const StageOracle& oracle() const { return *oracle_; }
  const Frontier& frontier() const { return *frontier_; }
  const NetworkFacts& network() const { return network_; }
  // What [begin, end) holds at least.
  Bytes LeastResident(int32_t begin, int32_t end) const {
    return least_resident_[end] - least_resident_[begin];
  }
  Bytes LeastGradients(int32_t begin, int32_t end) const {
    return least_gradients_[end] - least_gradients_[begin];
  }
  // By position: what the operators before it cannot do without.
  const Bytes* LeastGradientsBefore() const { return least_gradients_.data(); }

  // The `index`-th range that ends at `end`, by falling begin; nullptr beyond the one that begins
  // at 0. The pointer lasts until the next call for the same `end`. Amortised O(1) per operator.
  const Range* At(int32_t end, size_t index) {
    Row& row = rows_[end];
    if (index >= row.ranges.size() && !Fill(end, index)) return nullptr;
    return &row.ranges[index];
  }
  // Class at `end` of each frontier class at the begin of that range: what its members see beyond
  // the range; -1: nothing. REQUIRES: At(end, index) != nullptr.
  const int32_t* Parents(int32_t end, size_t index) const {
    return rows_[end].parents.data() + rows_[end].first_parent[index];
  }

 private:
  struct Row {
    std::vector<Range> ranges;
    std::vector<uint32_t> first_parent;
    std::vector<int32_t> parents;
    // Where Fill() goes on.
    int32_t begin = 0;
    StageOracle::Extent extent;
    std::vector<int32_t> seen;
  };
  bool Fill(int32_t end, size_t index);

  const StageOracle* oracle_;
  const Frontier* frontier_;
  NetworkFacts network_;
  std::vector<Bytes> least_resident_;  // Prefix sums.
  std::vector<Bytes> least_gradients_;
  std::vector<Row> rows_;
};

}  // namespace stagewright
