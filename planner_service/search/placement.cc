#include "planner_service/search/placement.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"

namespace stagewright {
namespace {

// Free devices of each node, ascending, nodes in order.
std::vector<std::vector<DeviceId>> DevicesByNode(const Cluster& cluster) {
  int32_t nodes = 0;
  for (const Device& device : cluster.devices()) nodes = std::max(nodes, device.node + 1);
  std::vector<std::vector<DeviceId>> free(nodes);
  for (int32_t d = 0; d < cluster.size(); ++d) {
    free[cluster.devices()[d].node].push_back(DeviceId(d));
  }
  return free;
}

// Moves the first `count` devices of `from` to the end of `to`.
void Take(std::vector<DeviceId>& from, size_t count, std::vector<DeviceId>& to) {
  to.insert(to.end(), from.begin(), from.begin() + count);
  from.erase(from.begin(), from.begin() + count);
}

// Takes one device at a time from nodes at equal distances, the last device of a node first.
void Spread(std::vector<std::vector<DeviceId>>& free, size_t count, std::vector<DeviceId>& to) {
  const size_t nodes = free.size();
  for (size_t i = 0; i < count; ++i) {
    size_t node = (i * nodes / count) % nodes;
    while (free[node].empty()) node = (node + 1) % nodes;
    to.push_back(free[node].back());
    free[node].pop_back();
  }
}

}  // namespace

std::vector<std::vector<DeviceId>> PlaceStages(const Cluster& cluster,
                                               const std::vector<int32_t>& replicas,
                                               const std::vector<bool>& spread) {
  CHECK(std::accumulate(replicas.begin(), replicas.end(), 0) <= cluster.size());
  std::vector<std::vector<DeviceId>> free = DevicesByNode(cluster);
  std::vector<std::vector<DeviceId>> placed(replicas.size());
  for (size_t s = 0; s < spread.size(); ++s) {
    if (spread[s]) Spread(free, static_cast<size_t>(replicas[s]), placed[s]);
  }
  size_t current = 0;  // The node of the stage before.
  for (size_t s = 0; s < replicas.size(); ++s) {
    if (!placed[s].empty()) continue;
    const auto wanted = static_cast<size_t>(replicas[s]);
    size_t node = current;
    if (free[node].size() < wanted) {
      node = 0;
      while (node < free.size() && free[node].size() < wanted) ++node;
    }
    if (node < free.size()) {
      Take(free[node], wanted, placed[s]);
      current = node;
      continue;
    }
    for (auto& rest : free) {
      const size_t missing = wanted - placed[s].size();
      Take(rest, std::min(missing, rest.size()), placed[s]);
    }
  }
  return placed;
}

}  // namespace stagewright
