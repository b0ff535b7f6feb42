// The bookkeeping of algorithm 1: which groups are taken, which may be next, and what a partition
// has. It knows nothing of probabilities.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "common/graph/dag.h"

namespace stagewright {

// The decision to begin the next partition; others are the group that is taken.
inline constexpr int32_t kCut = -1;

class Walk {
 public:
  Walk(const Dag& dag, int32_t most_partitions);

  bool Done() const {
    return static_cast<int32_t>(partitions_.size()) >= most_partitions_ || candidates_.empty();
  }
  // An empty partition is not cut.
  bool MayCut() const { return !partitions_.back().empty(); }
  // In ascending order.
  std::vector<int32_t> Candidates() const { return {candidates_.begin(), candidates_.end()}; }

  // `decision` is a candidate, or kCut where MayCut(). What joins the partition, in order: the
  // candidate behind all its predecessors that no partition has.
  std::vector<int32_t> Apply(int32_t decision);

  // What is left joins the last partition. Each is sorted.
  std::vector<std::vector<int32_t>> Finish();

 private:
  void Take(int32_t group, std::vector<int32_t>& joined);

  const Dag& dag_;
  int32_t most_partitions_;
  std::vector<bool> taken_;
  std::set<int32_t> candidates_;
  std::vector<std::vector<int32_t>> partitions_;
};

}  // namespace stagewright
