// The ways to give devices to stages, up to symmetry of the cluster.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/topology/cluster.h"

namespace stagewright {

// Permutations of the devices that leave the cluster as it is: equal kinds and memory, and links of
// equal latency and bandwidth behind all routes at once. `result[i][d]` is where device d goes; the
// identity is among them. O(n! n^2), for n of up to about eight.
std::vector<std::vector<int32_t>> Automorphisms(const Cluster& cluster);

// Disjoint sets of devices for the first, second, ... stage.
using DeviceLayout = std::vector<std::vector<DeviceId>>;

// Every sequence of at most `most_stages` disjoint sets of at most `most_replicas` devices each,
// one of those that the automorphisms turn into each other. Devices of a set are listed by
// falling rate (the first ones get the larger shares), then kind, memory, id. Deterministic. At
// most e n! sequences of n devices before symmetry.
std::vector<DeviceLayout> Layouts(const Cluster& cluster, int32_t most_stages,
                                  int64_t most_replicas);

}  // namespace stagewright
