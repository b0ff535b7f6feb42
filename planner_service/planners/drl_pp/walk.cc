#include "planner_service/planners/drl_pp/walk.h"

#include <algorithm>
#include <utility>

namespace stagewright {

Walk::Walk(const Dag& dag, int32_t most_partitions)
    : dag_(dag), most_partitions_(most_partitions), taken_(dag.size(), false), partitions_(1) {
  for (int32_t v = 0; v < dag.size(); ++v) {
    if (dag.Predecessors(v).empty()) candidates_.insert(v);
  }
}

std::vector<int32_t> Walk::Apply(int32_t decision) {
  std::vector<int32_t> joined;
  if (decision == kCut) {
    partitions_.emplace_back();
  } else {
    Take(decision, joined);
  }
  return joined;
}

void Walk::Take(int32_t group, std::vector<int32_t>& joined) {
  for (int32_t before : dag_.Predecessors(group)) {
    if (!taken_[before]) Take(before, joined);
  }
  taken_[group] = true;
  candidates_.erase(group);
  partitions_.back().push_back(group);
  joined.push_back(group);
  for (int32_t next : dag_.Successors(group)) {
    if (!taken_[next]) candidates_.insert(next);
  }
}

std::vector<std::vector<int32_t>> Walk::Finish() {
  for (int32_t v : dag_.order()) {
    if (!taken_[v]) partitions_.back().push_back(v);
  }
  if (partitions_.back().empty()) partitions_.pop_back();
  for (auto& partition : partitions_) std::sort(partition.begin(), partition.end());
  return std::move(partitions_);
}

}  // namespace stagewright
