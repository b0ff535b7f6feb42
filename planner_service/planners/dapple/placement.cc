#include "planner_service/planners/dapple/placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace stagewright::dapple {

Placements::Placements(const Cluster& cluster) : devices_(cluster.size()) {
  std::map<int32_t, std::vector<DeviceId>> by_node;
  for (int32_t d = 0; d < cluster.size(); ++d) {
    by_node[cluster.devices()[d].node].push_back(DeviceId(d));
  }
  for (auto& [node, devices] : by_node) nodes_.push_back(std::move(devices));
  InternOccupancy(std::vector<int32_t>(nodes_.size(), 0));
}

Placements::Placements(const std::vector<int32_t>& node_sizes) {
  for (int32_t size : node_sizes) {
    std::vector<DeviceId>& node = nodes_.emplace_back();
    for (int32_t i = 0; i < size; ++i) node.push_back(DeviceId(devices_++));
  }
  InternOccupancy(std::vector<int32_t>(nodes_.size(), 0));
}

int32_t Placements::InternOccupancy(std::vector<int32_t> used) {
  const auto [it, added] =
      occupancy_ids_.try_emplace(used, static_cast<int32_t>(occupancies_.size()));
  if (added) {
    total_.push_back(std::accumulate(used.begin(), used.end(), 0));
    occupancies_.push_back(std::move(used));
  }
  return it->second;
}

int32_t Placements::InternSet(std::vector<DeviceId> devices) {
  const auto [it, added] = set_ids_.try_emplace(devices, static_cast<int32_t>(sets_.size()));
  if (added) sets_.push_back(std::move(devices));
  return it->second;
}

bool Placements::Choose(int32_t occupancy, int32_t count, Policy policy, Choice& choice) {
  const std::vector<int32_t> before = occupancies_[occupancy];
  const auto free = [&](size_t n) { return static_cast<int32_t>(nodes_[n].size()) - before[n]; };
  std::vector<bool> eligible(nodes_.size());
  int32_t room = 0;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    eligible[n] = (before[n] == 0) == (policy == Policy::kFreshFirst);
    if (eligible[n]) room += free(n);
  }
  if (policy == Policy::kScatterFirst && room < count) {
    eligible.assign(nodes_.size(), true);
    room = devices_ - total_[occupancy];
  }
  if (room < count) return false;
  std::vector<int32_t> take(nodes_.size(), 0);
  int32_t left = count;
  if (policy == Policy::kScatterFirst) {
    for (size_t n = 0; left > 0; n = (n + 1) % nodes_.size()) {
      if (!eligible[n] || take[n] == free(n)) continue;
      ++take[n];
      --left;
    }
  } else {
    for (size_t n = 0; n < nodes_.size() && left > 0; ++n) {
      if (!eligible[n]) continue;
      take[n] = std::min(left, free(n));
      left -= take[n];
    }
  }
  std::vector<DeviceId> devices;
  std::vector<int32_t> after = before;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const auto begin = nodes_[n].begin() + before[n];
    devices.insert(devices.end(), begin, begin + take[n]);
    after[n] += take[n];
  }
  std::sort(devices.begin(), devices.end());
  choice = {InternSet(std::move(devices)), InternOccupancy(std::move(after))};
  return true;
}

const std::vector<Placements::Choice>& Placements::Next(int32_t occupancy, int32_t count) {
  const auto [it, added] = next_.try_emplace({occupancy, count});
  if (!added) return it->second;
  for (Policy policy : {Policy::kFreshFirst, Policy::kAppendFirst, Policy::kScatterFirst}) {
    Choice choice;
    if (!Choose(occupancy, count, policy, choice)) continue;
    const bool known = std::any_of(it->second.begin(), it->second.end(),
                                   [&](const Choice& c) { return c.devices == choice.devices; });
    if (!known) it->second.push_back(choice);
  }
  return it->second;
}

}  // namespace stagewright::dapple
