#include "planner_service/planners/graphpipe/recurrence/stage_ranges.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "common/cost/collectives.h"

namespace stagewright {
namespace {

// Begins of ranges of this many operators are multiples of it.
int32_t StepOf(int32_t length) {
  return static_cast<int32_t>(std::bit_ceil(
      static_cast<uint32_t>((length + StageRanges::kDense - 1) / StageRanges::kDense)));
}

}  // namespace

NetworkFacts::NetworkFacts(const Cluster& cluster) {
  slowest = std::numeric_limits<double>::infinity();
  std::vector<int32_t> on_node(cluster.size(), 0);
  for (const Device& device : cluster.devices()) {
    if (device.node >= static_cast<int32_t>(on_node.size())) on_node.resize(device.node + 1, 0);
    node_size = std::max(node_size, ++on_node[device.node]);
  }
  nodes = (cluster.size() + node_size - 1) / node_size;
  for (int32_t a = 0; a < cluster.size(); ++a) {
    for (int32_t b = 0; b < cluster.size(); ++b) {
      if (a == b) continue;
      const double rate = cluster.route(DeviceId(a), DeviceId(b)).bytes_per_second * 1e-9;
      fastest = std::max(fastest, rate);
      slowest = std::min(slowest, rate);
    }
  }
  std::vector<DeviceId> devices;
  for (int32_t replicas = 1; replicas <= cluster.size(); replicas *= 2) {
    while (static_cast<int32_t>(devices.size()) < replicas) {
      devices.push_back(DeviceId(static_cast<int64_t>(devices.size())));
    }
    const AllReduceLine line = FitAllReduce(cluster, devices);
    sums.push_back({line.latency, line.per_byte});
  }
}

StageRanges::StageRanges(const StageOracle& oracle, const Frontier& frontier)
    : oracle_(&oracle),
      frontier_(&frontier),
      network_(*oracle.problem().cluster),
      rows_(oracle.size() + 1) {
  oracle.LeastParameters(least_resident_, least_gradients_);
  for (int32_t end = 0; end <= oracle.size(); ++end) {
    rows_[end].begin = end;
    rows_[end].seen.resize(frontier.At(end).size());
    std::iota(rows_[end].seen.begin(), rows_[end].seen.end(), 0);
  }
}

bool StageRanges::Fill(int32_t end, size_t index) {
  Row& row = rows_[end];
  std::vector<int32_t> next;
  while (row.ranges.size() <= index) {
    if (row.begin == 0) return false;
    --row.begin;
    const auto& classes = frontier_->At(row.begin);
    next.resize(classes.size());
    for (size_t c = 0; c < classes.size(); ++c) {
      next[c] = classes[c].parent < 0 ? -1 : row.seen[classes[c].parent];
    }
    row.seen.swap(next);
    row.extent = oracle_->Grow(row.extent, row.begin, end);
    if (row.begin % StepOf(end - row.begin) != 0) continue;
    row.first_parent.push_back(static_cast<uint32_t>(row.parents.size()));
    row.parents.insert(row.parents.end(), row.seen.begin(), row.seen.end());
    row.ranges.push_back({row.begin, row.extent});
  }
  return true;
}

}  // namespace stagewright
