#include "planner_service/planners/graphpipe/layout.h"

#include <algorithm>
#include <limits>

#include "planner_service/search/placement.h"

namespace stagewright {
namespace {

// Replicas exchange the intersections of their shares of each micro-batch.
Layout::Load LoadOf(const Cluster& cluster, const std::vector<DeviceId>& from,
                    const std::vector<DeviceId>& to, double bytes) {
  Layout::Load load;
  load.links.reserve(4 * std::max(from.size(), to.size()));
  const auto senders = static_cast<double>(from.size());
  const auto receivers = static_cast<double>(to.size());
  for (size_t s = 0, r = 0; s < from.size() && r < to.size();) {
    const double begin =
        std::max(static_cast<double>(s) / senders, static_cast<double>(r) / receivers);
    const bool sender_ends = (s + 1) * to.size() <= (r + 1) * from.size();
    const bool receiver_ends = (r + 1) * from.size() <= (s + 1) * to.size();
    const double end =
        sender_ends ? static_cast<double>(s + 1) / senders : static_cast<double>(r + 1) / receivers;
    if (from[s] != to[r]) {
      const Route& route = cluster.route(from[s], to[r]);
      load.latency = std::max(load.latency, route.latency);
      for (int32_t link : route.links) load.links.emplace_back(link, bytes * (end - begin));
    }
    if (sender_ends) ++s;
    if (receiver_ends) ++r;
  }
  // One entry per link.
  std::sort(load.links.begin(), load.links.end());
  size_t kept = 0;
  for (const auto& [link, amount] : load.links) {
    if (kept > 0 && load.links[kept - 1].first == link) {
      load.links[kept - 1].second += amount;
    } else {
      load.links[kept++] = {link, amount};
    }
  }
  load.links.resize(kept);
  return load;
}

}  // namespace

std::vector<CostTable::Exchange> StageEdges(const StageOracle& oracle, const Partition& partition,
                                            StrategyKind kind) {
  std::vector<int32_t> begins;
  for (const StageChoice& choice : partition.stages) begins.push_back(choice.begin);
  std::vector<CostTable::Exchange> edges = oracle.Exchanges(begins);
  if (kind == StrategyKind::kGraph) return edges;
  const auto before = [](const auto& a, const auto& b) {
    return std::pair(a.from, a.to) < std::pair(b.from, b.to);
  };
  const size_t data = edges.size();
  for (int32_t s = 1; s < static_cast<int32_t>(begins.size()); ++s) {
    const CostTable::Exchange chain{s - 1, s};
    if (!std::binary_search(edges.begin(), edges.begin() + data, chain, before)) {
      edges.push_back(chain);
    }
  }
  std::sort(edges.begin(), edges.end(), before);
  return edges;
}

double Layout::Busiest(const Cluster& cluster) const {
  std::vector<double> all(cluster.links().size(), 0);
  for (const Edge& edge : edges) {
    for (const Load* load : {&edge.there, &edge.back}) {
      for (const auto& [link, amount] : load->links) all[link] += amount;
    }
  }
  double busiest = 0;
  for (size_t link = 0; link < all.size(); ++link) {
    busiest = std::max(busiest, all[link] * 1e9 / cluster.links()[link].bytes_per_second);
  }
  return busiest;
}

Layout MakeLayout(const StageOracle& oracle, const Partition& partition, StrategyKind kind,
                  const std::vector<bool>& spread) {
  const Cluster& cluster = *oracle.problem().cluster;
  Layout layout;
  std::vector<int32_t> replicas;
  for (const StageChoice& choice : partition.stages) {
    replicas.push_back(choice.replicas);
    layout.in_flight.push_back(choice.in_flight);
  }
  layout.devices = PlaceStages(cluster, replicas, spread);
  for (const CostTable::Exchange& edge : StageEdges(oracle, partition, kind)) {
    const auto& from = layout.devices[edge.from];
    const auto& to = layout.devices[edge.to];
    const auto bytes = static_cast<double>(edge.there);
    layout.edges.push_back(
        {edge.from, edge.to, LoadOf(cluster, from, to, bytes), LoadOf(cluster, to, from, bytes)});
  }
  return layout;
}

std::vector<bool> StagesToSpread(const StageOracle& oracle, const Partition& partition,
                                 double period) {
  const Cluster& cluster = *oracle.problem().cluster;
  double slowest = std::numeric_limits<double>::infinity();
  for (const Link& link : cluster.links()) slowest = std::min(slowest, link.bytes_per_second);
  std::vector<bool> spread(partition.stages.size(), false);
  bool any = false;
  for (size_t s = 0; s < partition.stages.size(); ++s) {
    const StageChoice& choice = partition.stages[s];
    if (choice.replicas == 1) continue;
    const StageOracle::Extent& extent = oracle.At(choice.begin, choice.end);
    const double bytes = std::max(extent.in_per_sample, extent.out_per_sample);
    spread[s] = bytes * 1e9 / slowest > period;
    any = any || spread[s];
  }
  return any ? spread : std::vector<bool>();
}

}  // namespace stagewright
