#include "common/cost/collectives.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace stagewright {
namespace {

// Rings that run at the same time, each over its devices in order.
using Rings = std::vector<std::vector<DeviceId>>;

// What one step of all rings together takes, apart from the bytes.
struct Step {
  Nanos latency = 0;
  double rate = std::numeric_limits<double>::infinity();  // Bytes per second of the slowest hop.
};

// Every device of a ring sends to the next one; hops over a common link share it.
Step StepOf(const Cluster& cluster, const Rings& rings) {
  const auto for_each_hop = [&](auto&& visit) {
    for (const std::vector<DeviceId>& ring : rings) {
      for (size_t i = 0; ring.size() > 1 && i < ring.size(); ++i)
        visit(cluster.route(ring[i], ring[(i + 1) % ring.size()]));
    }
  };
  std::vector<int32_t> hops;  // The link of each hop, ascending.
  for_each_hop(
      [&](const Route& route) { hops.insert(hops.end(), route.links.begin(), route.links.end()); });
  std::sort(hops.begin(), hops.end());
  const auto users = [&](int32_t link) {
    const auto [first, last] = std::equal_range(hops.begin(), hops.end(), link);
    return static_cast<int32_t>(last - first);
  };
  Step step;
  for_each_hop([&](const Route& route) {
    step.latency = std::max(step.latency, route.latency);
    for (int32_t link : route.links)
      step.rate = std::min(step.rate, cluster.links()[link].bytes_per_second / users(link));
  });
  // Every device sends a message and receives one, once it has a core.
  Nanos messages = 0;
  for (const std::vector<DeviceId>& ring : rings) {
    for (DeviceId device : ring) {
      const DeviceKind& kind = cluster.kind_of(device);
      messages = std::max(messages, 2 * kind.message_overhead + kind.reduction_overhead);
    }
  }
  step.latency += messages;
  return step;
}

// n - 1 steps of a ring of n devices move (n - 1) / n of the bytes: one round is a reduce-scatter
// or an all-gather, two are an all-reduce.
Nanos RingTime(const Step& step, size_t devices, int32_t rounds, double bytes) {
  if (devices < 2) return 0;
  const int64_t steps = rounds * static_cast<int64_t>(devices - 1);
  const double seconds =
      static_cast<double>(steps) / static_cast<double>(devices) * bytes / step.rate;
  return steps * step.latency + Nanos(std::llround(seconds * 1e9));
}

// The devices of each node, by id; nodes in order.
Rings ByNode(const Cluster& cluster, std::vector<DeviceId> devices) {
  const auto key = [&](DeviceId device) {
    return std::make_pair(cluster.device(device).node, device);
  };
  std::sort(devices.begin(), devices.end(),
            [&](DeviceId a, DeviceId b) { return key(a) < key(b); });
  Rings rings;
  for (size_t i = 0; i < devices.size(); ++i) {
    const bool next =
        i == 0 || cluster.device(devices[i]).node != cluster.device(devices[i - 1]).node;
    if (next) rings.emplace_back();
    rings.back().push_back(devices[i]);
  }
  return rings;
}

// One ring through all nodes.
class OneRing {
 public:
  OneRing(const Cluster& cluster, const Rings& nodes) {
    std::vector<DeviceId> ring;
    for (const std::vector<DeviceId>& node : nodes)
      ring.insert(ring.end(), node.begin(), node.end());
    devices_ = ring.size();
    step_ = StepOf(cluster, {std::move(ring)});
  }
  Nanos Time(Bytes bytes) const { return RingTime(step_, devices_, 2, static_cast<double>(bytes)); }

 private:
  size_t devices_ = 0;
  Step step_;
};

// Rings inside several nodes and across them.
class NestedRings {
 public:
  NestedRings(const Cluster& cluster, const Rings& nodes) : nodes_(nodes.size()) {
    const auto by_size = [](const auto& a, const auto& b) { return a.size() < b.size(); };
    largest_ = std::max_element(nodes.begin(), nodes.end(), by_size)->size();
    smallest_ = std::min_element(nodes.begin(), nodes.end(), by_size)->size();
    Rings across(smallest_);
    for (size_t i = 0; i < smallest_; ++i) {
      for (const std::vector<DeviceId>& node : nodes) across[i].push_back(node[i]);
    }
    inside_ = StepOf(cluster, nodes);
    across_ = StepOf(cluster, across);
  }
  Nanos Time(Bytes bytes) const {
    const auto all = static_cast<double>(bytes);
    const Nanos inside = RingTime(inside_, largest_, 1, all);
    const Nanos across = RingTime(across_, nodes_, 1, all / static_cast<double>(smallest_));
    return 2 * inside + 2 * across;
  }

 private:
  size_t nodes_, largest_ = 0, smallest_ = 0;
  Step inside_, across_;
};

// The straight line through two times.
template <typename F>
AllReduceLine Fit(F&& time) {
  constexpr Bytes kMany = Bytes{int64_t{1} << 40};
  const auto latency = static_cast<double>(time(Bytes(0)));
  const auto many = static_cast<double>(time(kMany));
  return {latency, (many - latency) / static_cast<double>(kMany)};
}

}  // namespace

Nanos RingAllReduceTime(const Cluster& cluster, const std::vector<DeviceId>& devices, Bytes bytes) {
  if (devices.size() < 2) return 0;
  return OneRing(cluster, ByNode(cluster, devices)).Time(bytes);
}

Nanos HierarchicalAllReduceTime(const Cluster& cluster, const std::vector<DeviceId>& devices,
                                Bytes bytes) {
  const Rings nodes = ByNode(cluster, devices);
  if (nodes.size() < 2) return RingAllReduceTime(cluster, devices, bytes);
  return NestedRings(cluster, nodes).Time(bytes);
}

Nanos AllReduceTime(const Cluster& cluster, const std::vector<DeviceId>& devices, Bytes bytes) {
  return std::min(RingAllReduceTime(cluster, devices, bytes),
                  HierarchicalAllReduceTime(cluster, devices, bytes));
}

Nanos ShareExchangeTime(const Cluster& cluster, const std::vector<DeviceId>& devices, Bytes bytes) {
  return (AllReduceTime(cluster, devices, bytes) + 1) / 2;
}

AllReduceLine FitAllReduce(const Cluster& cluster, const std::vector<DeviceId>& devices,
                           AllReduceTimer time) {
  return Fit([&](Bytes bytes) { return time(cluster, devices, bytes); });
}

AllReduceLines FitAllReduceLines(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  if (devices.size() < 2) return {};
  const Rings nodes = ByNode(cluster, devices);
  const OneRing ring(cluster, nodes);
  AllReduceLines lines;
  lines.ring = Fit([&](Bytes bytes) { return ring.Time(bytes); });
  lines.hierarchy = lines.ring;
  if (nodes.size() < 2) return lines;
  const NestedRings nested(cluster, nodes);
  lines.hierarchy = Fit([&](Bytes bytes) { return nested.Time(bytes); });
  return lines;
}

AllReduceLines HalfOf(const AllReduceLines& lines) {
  const auto half = [](const AllReduceLine& line) {
    return AllReduceLine{line.latency / 2, line.per_byte / 2};
  };
  return {half(lines.ring), half(lines.hierarchy)};
}

double AllReduceLines::Time(Bytes bytes) const {
  const auto all = static_cast<double>(bytes);
  return std::min(ring.latency + ring.per_byte * all, hierarchy.latency + hierarchy.per_byte * all);
}

FastestExchange FastestOf(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  FastestExchange fastest{std::numeric_limits<double>::infinity(), 0};
  for (DeviceId a : devices) {
    for (DeviceId b : devices) {
      if (a == b) continue;
      const Route& route = cluster.route(a, b);
      fastest.latency = std::min(fastest.latency, static_cast<double>(route.latency));
      fastest.bytes_per_nano = std::max(fastest.bytes_per_nano, route.bytes_per_second * 1e-9);
    }
  }
  return fastest;
}

double LeastAllReduceTime(Bytes bytes, int64_t count, const FastestExchange& fastest) {
  if (bytes == 0 || count < 2) return 0;
  const auto n = static_cast<double>(count);
  const double hops = std::bit_width(static_cast<uint64_t>(count - 1));
  const double through = 2 * (n - 1) / n * static_cast<double>(bytes);
  // Rounded to whole nanoseconds: at most one less a phase.
  return std::max(0.0, hops * fastest.latency + through / fastest.bytes_per_nano - 3);
}

}  // namespace stagewright
