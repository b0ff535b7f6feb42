// How long devices take to sum what each of them has: the all-reduces of gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/topology/cluster.h"

namespace stagewright {

// A ring all-reduce of `bytes` over n devices, by node and id: 2 (n - 1) steps, in each of which
// every device sends bytes / n to the next one. A step lasts as long as its slowest hop; hops that
// use a link at the same time share it. 0 for one device. O(n).
Nanos RingAllReduceTime(const Cluster& cluster, const std::vector<DeviceId>& devices, Bytes bytes);

// In three parts: reduce-scatter rings inside the nodes; of g devices in the node with the fewest,
// g rings across the nodes, each of which sums its g-th of the bytes; all-gather rings inside the
// nodes. The rings of a part run at the same time and share links. A ring if there is one node.
// O(n log n).
Nanos HierarchicalAllReduceTime(const Cluster& cluster, const std::vector<DeviceId>& devices,
                                Bytes bytes);

// What the simulator takes: the faster of the two.
Nanos AllReduceTime(const Cluster& cluster, const std::vector<DeviceId>& devices, Bytes bytes);

// Half of an all-reduce: a reduce-scatter, after which each of n devices has the sum of an n-th of
// the bytes, or an all-gather, after which all have these. n - 1 steps of a ring, or rings inside
// the nodes and across them, whichever is faster.
Nanos ShareExchangeTime(const Cluster& cluster, const std::vector<DeviceId>& devices, Bytes bytes);

// The straight line through the times of an all-reduce of none and of very many bytes.
struct AllReduceLine {
  double latency = 0;   // ns.
  double per_byte = 0;  // ns.
};
using AllReduceTimer = Nanos (*)(const Cluster&, const std::vector<DeviceId>&, Bytes);
AllReduceLine FitAllReduce(const Cluster& cluster, const std::vector<DeviceId>& devices,
                           AllReduceTimer time = AllReduceTime);

// AllReduceTime without rounding, for who asks about many sizes.
struct AllReduceLines {
  AllReduceLine ring, hierarchy;
  // ns. O(1).
  double Time(Bytes bytes) const;
};
AllReduceLines FitAllReduceLines(const Cluster& cluster, const std::vector<DeviceId>& devices);
// Those of ShareExchangeTime.
AllReduceLines HalfOf(const AllReduceLines& lines);

// The fastest that any two of some devices can exchange; nothing for fewer than two.
struct FastestExchange {
  double latency = 0;         // ns.
  double bytes_per_nano = 0;  // Maybe on another route than that of the latency.
};
// O(n^2) for n devices.
FastestExchange FastestOf(const Cluster& cluster, const std::vector<DeviceId>& devices);

// At least this long, ns, takes AllReduceTime over `count` devices of which no two exchange faster:
// everybody's data have to reach everybody, in messages that double who has them at best, and 2
// (n - 1) / n of the bytes have to pass through every device. 0 for 0 bytes or one device.
double LeastAllReduceTime(Bytes bytes, int64_t count, const FastestExchange& fastest);

}  // namespace stagewright
