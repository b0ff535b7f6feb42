// Algorithm 1 of GraphPipe as it is printed: a recursion over the series-parallel tree with a table
// over numbers of devices. The yardstick for the planner's faster search.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "common/graph/series_parallel.h"
#include "planner_service/planners/graphpipe/recurrence/partition_search.h"

namespace stagewright::testing {

class ReferencePartitioner {
 public:
  // One micro-batch size, 1F1B. `cost` answers what a stage costs; the recurrence is our own.
  ReferencePartitioner(const SpTree& tree, const StageOracle& oracle, const PartitionSearch& cost,
                       int64_t micro_batch, bool replicas);

  // SEARCHSTAGEGRAPH: the smallest number of samples in flight in the source stage of a stage graph
  // that meets `t` with at most `devices` devices; none if there is no such stage graph.
  std::optional<int64_t> Search(int32_t devices, double t);

  // The ranges of the linear order that can be a stage: ranges of children of one vertex.
  std::vector<bool> StageRanges() const;

 private:
  using State = std::tuple<int32_t, size_t, size_t, int64_t, int32_t>;
  // DP(G, c_b, d, t): G is children [first, last) of `vertex`; `behind` is i_b.
  std::optional<int64_t> Solve(int32_t vertex, size_t first, size_t last, int64_t behind,
                               int32_t devices);
  std::optional<int64_t> SingleStage(int32_t begin, int32_t end, int64_t behind,
                                     int32_t devices) const;

  const SpTree& tree_;
  const StageOracle& oracle_;
  const PartitionSearch& cost_;
  int64_t micro_batch_;
  bool replicas_;
  double t_ = 0;
  std::vector<int32_t> begin_;  // Range of the linear order that each vertex covers.
  std::vector<int32_t> end_;
  std::map<State, std::optional<int64_t>> known_;
};

}  // namespace stagewright::testing
