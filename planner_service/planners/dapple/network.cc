#include "planner_service/planners/dapple/network.h"

#include <algorithm>
#include <map>

#include "common/cost/collectives.h"

namespace stagewright::dapple {

Affine ClusterNetwork::Transfer(const std::vector<DeviceId>& from,
                                const std::vector<DeviceId>& to) const {
  // Sender a has the samples [a, a + 1) / |from|, receiver b wants [b, b + 1) / |to|.
  std::map<int32_t, double> load;  // Share of the bytes by link.
  Affine affine;
  const auto senders = static_cast<double>(from.size());
  const auto receivers = static_cast<double>(to.size());
  size_t b = 0;
  for (size_t a = 0; a < from.size(); ++a) {
    while (b > 0 && static_cast<double>(b) / receivers > static_cast<double>(a) / senders) --b;
    for (; b < to.size(); ++b) {
      const double begin =
          std::max(static_cast<double>(a) / senders, static_cast<double>(b) / receivers);
      const double end =
          std::min(static_cast<double>(a + 1) / senders, static_cast<double>(b + 1) / receivers);
      if (static_cast<double>(b) / receivers >= static_cast<double>(a + 1) / senders) break;
      if (end <= begin || from[a] == to[b]) continue;
      const Route& route = cluster_.route(from[a], to[b]);
      affine.latency = std::max(affine.latency, ToSeconds(route.latency));
      for (int32_t link : route.links) load[link] += end - begin;
    }
  }
  for (const auto& [link, share] : load) {
    affine.per_byte = std::max(affine.per_byte, share / cluster_.links()[link].bytes_per_second);
  }
  return affine;
}

Affine ClusterNetwork::AllReduce(const std::vector<DeviceId>& devices) const {
  if (devices.size() < 2) return {};
  const AllReduceLine line =
      FitAllReduce(cluster_, devices, sums_ == Sums::kRing ? RingAllReduceTime : AllReduceTime);
  return {line.latency * 1e-9, line.per_byte * 1e-9};
}

CodedNetwork::CodedNetwork(const std::vector<int32_t>& node_sizes) {
  for (size_t n = 0; n < node_sizes.size(); ++n) {
    node_of_.insert(node_of_.end(), node_sizes[n], static_cast<int32_t>(n));
  }
}

Affine CodedNetwork::Transfer(const std::vector<DeviceId>& from,
                              const std::vector<DeviceId>& to) const {
  const int32_t first = node_of_[to.front().index()];
  const auto elsewhere =
      static_cast<double>(std::count_if(from.begin(), from.end(), [&](DeviceId device) {
        return node_of_[device.index()] != first;
      }));
  if (first != node_of_[to.back().index()]) return {0, 1 / nccl};
  if (elsewhere == 0) return {0, 1 / nvlink};
  return {0, elsewhere / static_cast<double>(from.size()) / p2p};
}

Affine CodedNetwork::AllReduce(const std::vector<DeviceId>& devices) const {
  const auto n = static_cast<double>(devices.size());
  if (devices.size() < 2) return {};
  const double factor = 2 * (n - 1) / n;
  const bool across = node_of_[devices.front().index()] != node_of_[devices.back().index()];
  if (across) return {0, factor / nccl};
  return {0, factor / nvlink / static_cast<double>(devices.size() / 2)};
}

}  // namespace stagewright::dapple
