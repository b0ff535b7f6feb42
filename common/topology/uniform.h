// Clusters for imported profiles, whose nodes carry times already: devices of one kind that adds
// nothing, and links that nobody shares.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/topology/cluster.h"

namespace stagewright {

// `nodes` nodes of `devices_per_node` devices; every ordered pair of devices has a link of its own,
// `inside` within a node and `outside` between nodes. The kind of device has no kernel overhead and
// rates so high that an optimizer step takes no measurable time.
struct UniformSpec {
  std::string name;
  int32_t nodes = 1;
  int32_t devices_per_node = 1;
  Bytes memory = Bytes{int64_t{1} << 50};  // Ample: 1 PiB.
  Link inside = {"", 20 * kMicrosecond, 12.5e9};
  Link outside = {"", 20 * kMicrosecond, 12.5e9};
};
absl::StatusOr<Cluster> MakeUniform(const UniformSpec& spec);

// A kind like that of these clusters: whatever takes its time from rates takes none.
bool OnlyForMeasuredTimes(const DeviceKind& kind);

// "uniform:8", "uniform:4x8" (4 nodes of 8), and after a comma each, "bandwidth=1e9",
// "latency=0", "memory=16GiB", "outside-bandwidth=1e9", "outside-latency=50us": docs/clusters.md.
// The links between nodes are like those inside unless given. INVALID_ARGUMENT names the part.
absl::StatusOr<Cluster> UniformPreset(const std::string& text);

}  // namespace stagewright
