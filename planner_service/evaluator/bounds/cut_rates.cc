#include "planner_service/evaluator/bounds/cut_rates.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace stagewright {
namespace {

// The rates of distinct links, summed.
class LinkSum {
 public:
  explicit LinkSum(const Cluster& cluster) : cluster_(cluster), seen_(cluster.links().size(), -1) {}
  void Add(int32_t group, int32_t link) {
    if (seen_[link] == group) return;
    seen_[link] = group;
    sum_ += cluster_.links()[link].bytes_per_second * 1e-9;
  }
  double Take() { return std::exchange(sum_, 0); }

 private:
  const Cluster& cluster_;
  std::vector<int32_t> seen_;  // By link: the last group it was counted for.
  double sum_ = 0;
};

// Any set of links that has one of every route over the boundary holds what crosses it; the least
// of three such sets: the first, the last and the slowest link of each route.
class Crossing {
 public:
  explicit Crossing(const Cluster& cluster) : cluster_(cluster), sums_(3, LinkSum(cluster)) {}

  double Of(int32_t group, const std::vector<int32_t>& group_of, bool inwards) {
    for (int32_t a = 0; a < cluster_.size(); ++a) {
      if (group_of[a] != group) continue;
      for (int32_t b = 0; b < cluster_.size(); ++b) {
        if (group_of[b] == group) continue;
        Add(group, inwards ? cluster_.route(DeviceId(b), DeviceId(a))
                           : cluster_.route(DeviceId(a), DeviceId(b)));
      }
    }
    double least = sums_[0].Take();
    for (size_t i = 1; i < sums_.size(); ++i) least = std::min(least, sums_[i].Take());
    return least;
  }

 private:
  void Add(int32_t group, const Route& route) {
    const auto slower = [&](int32_t x, int32_t y) {
      return cluster_.links()[x].bytes_per_second < cluster_.links()[y].bytes_per_second;
    };
    sums_[0].Add(group, route.links.front());
    sums_[1].Add(group, route.links.back());
    sums_[2].Add(group, *std::min_element(route.links.begin(), route.links.end(), slower));
  }

  const Cluster& cluster_;
  std::vector<LinkSum> sums_;
};

CutRates Cut(const Cluster& cluster, const std::vector<int32_t>& group_of, int32_t groups) {
  CutRates rates;
  rates.devices.resize(groups);
  for (int32_t group : group_of) ++rates.devices[group];
  Crossing in(cluster);
  Crossing out(cluster);
  for (int32_t group = 0; group < groups; ++group) {
    rates.in.push_back(in.Of(group, group_of, true));
    rates.out.push_back(out.Of(group, group_of, false));
  }
  std::sort(rates.in.begin(), rates.in.end(), std::greater<>());
  std::sort(rates.out.begin(), rates.out.end(), std::greater<>());
  std::sort(rates.devices.begin(), rates.devices.end(), std::greater<>());
  return rates;
}

}  // namespace

CutRates CutByDevice(const Cluster& cluster) {
  std::vector<int32_t> group_of(cluster.size());
  std::iota(group_of.begin(), group_of.end(), 0);
  return Cut(cluster, group_of, cluster.size());
}

CutRates CutByNode(const Cluster& cluster) {
  std::vector<int32_t> nodes;
  for (const Device& device : cluster.devices()) nodes.push_back(device.node);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  std::vector<int32_t> group_of;
  for (const Device& device : cluster.devices()) {
    group_of.push_back(static_cast<int32_t>(
        std::lower_bound(nodes.begin(), nodes.end(), device.node) - nodes.begin()));
  }
  return Cut(cluster, group_of, static_cast<int32_t>(nodes.size()));
}

}  // namespace stagewright
