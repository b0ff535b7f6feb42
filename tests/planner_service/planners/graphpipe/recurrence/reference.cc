#include "tests/planner_service/planners/graphpipe/recurrence/reference.h"

#include <algorithm>

#include "common/strategy/in_flight.h"

namespace stagewright::testing {

ReferencePartitioner::ReferencePartitioner(const SpTree& tree, const StageOracle& oracle,
                                           const PartitionSearch& cost, int64_t micro_batch,
                                           bool replicas)
    : tree_(tree),
      oracle_(oracle),
      cost_(cost),
      micro_batch_(micro_batch),
      replicas_(replicas),
      begin_(tree.vertices.size()),
      end_(tree.vertices.size()) {
  std::vector<int32_t> position(oracle.size());
  for (int32_t p = 0; p < oracle.size(); ++p) position[oracle.order()[p].index()] = p;
  for (size_t v = 0; v < tree.vertices.size(); ++v) {
    const SpTree::Vertex& vertex = tree.vertices[v];
    if (vertex.kind == SpTree::Kind::kLeaf) {
      begin_[v] = position[vertex.leaf];
      end_[v] = begin_[v] + 1;
    } else {
      begin_[v] = begin_[vertex.children.front()];
      end_[v] = end_[vertex.children.back()];
    }
  }
}

std::vector<bool> ReferencePartitioner::StageRanges() const {
  const size_t n = oracle_.size();
  std::vector<bool> allowed((n + 1) * (n + 1), false);
  for (size_t v = 0; v < tree_.vertices.size(); ++v) {
    allowed[begin_[v] * (n + 1) + end_[v]] = true;
    const auto& children = tree_.vertices[v].children;
    for (size_t i = 0; i < children.size(); ++i) {
      for (size_t j = i; j < children.size(); ++j) {
        allowed[begin_[children[i]] * (n + 1) + end_[children[j]]] = true;
      }
    }
  }
  return allowed;
}

std::optional<int64_t> ReferencePartitioner::Search(int32_t devices, double t) {
  t_ = t;
  known_.clear();
  const auto root = tree_.root();
  return Solve(root, 0, std::max<size_t>(tree_.vertices[root].children.size(), 1), 0, devices);
}

std::optional<int64_t> ReferencePartitioner::SingleStage(int32_t begin, int32_t end, int64_t behind,
                                                         int32_t devices) const {
  const int64_t mini_batch = oracle_.problem().mini_batch;
  const int64_t in_flight = std::min(
      behind == 0 ? micro_batch_ : ComputeInFlight(1, micro_batch_, 1, micro_batch_, behind),
      mini_batch);
  for (int32_t d = 1; d <= devices && micro_batch_ % d == 0; d *= 2) {
    const bool fast = cost_.StageTps(begin, end, d, {micro_batch_, 1}) <= t_;
    const Bytes memory = oracle_.Memory(
        begin, end, {micro_batch_ / d, in_flight / micro_batch_, mini_batch / micro_batch_});
    if (fast && memory <= oracle_.budget()) return in_flight;
    if (!replicas_) break;
  }
  return std::nullopt;
}

std::optional<int64_t> ReferencePartitioner::Solve(int32_t vertex, size_t first, size_t last,
                                                   int64_t behind, int32_t devices) {
  const SpTree::Vertex& at = tree_.vertices[vertex];
  if (at.kind == SpTree::Kind::kLeaf) {
    return SingleStage(begin_[vertex], end_[vertex], behind, devices);
  }
  if (last - first == 1) {
    const int32_t child = at.children[first];
    return Solve(child, 0, std::max<size_t>(tree_.vertices[child].children.size(), 1), behind,
                 devices);
  }
  const auto [entry, is_new] = known_.try_emplace({vertex, first, last, behind, devices});
  if (!is_new) return entry->second;
  std::optional<int64_t> best =
      SingleStage(begin_[at.children[first]], end_[at.children[last - 1]], behind, devices);
  const auto pick_better = [&](std::optional<int64_t> in_flight) {
    if (in_flight.has_value() && (!best.has_value() || *in_flight < *best)) best = in_flight;
  };
  for (size_t middle = first + 1; middle < last; ++middle) {
    for (int32_t d = 1; d < devices; ++d) {
      if (at.kind == SpTree::Kind::kSeries) {
        const auto second = Solve(vertex, middle, last, behind, devices - d);
        if (!second.has_value()) continue;
        pick_better(Solve(vertex, first, middle, *second, d));
      } else {
        const auto one = Solve(vertex, first, middle, behind, d);
        const auto other = Solve(vertex, middle, last, behind, devices - d);
        if (one.has_value() && other.has_value()) pick_better(std::max(*one, *other));
      }
    }
  }
  known_[{vertex, first, last, behind, devices}] = best;
  return best;
}

}  // namespace stagewright::testing
