// Devices and links (GraphPipe section 3: device topology). Transfer time over a route is affine:
// latency + bytes / bandwidth. Links are shared resources: transfers over the same link at the same
// time share its bandwidth.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/topology/device_kind.h"

namespace stagewright {

struct Device {
  std::string name;  // "node0/gpu1"
  int32_t kind = 0;  // Index in Cluster::kinds().
  int32_t node = 0;  // Devices of one node share its links to the outside.
  Bytes memory = 0;  // Budget for one job.
};

// A shared resource that transfers pass through.
struct Link {
  std::string name;  // "node0/nvlink", "node0/uplink"
  Nanos latency = 0;
  double bytes_per_second = 0;
};

// The links a transfer between two devices occupies, all at once.
struct Route {
  std::vector<int32_t> links;   // Indices in Cluster::links().
  Nanos latency = 0;            // Sum over the links.
  double bytes_per_second = 0;  // Smallest over the links.

  // latency + bytes / bandwidth, rounded up; 0 where there are no links (same device).
  Nanos TransferTime(Bytes bytes) const;
};

// The contents of a cluster before its invariants are checked.
struct ClusterData {
  std::string name;
  std::vector<DeviceKind> kinds;
  std::vector<Device> devices;
  std::vector<Link> links;
  // Links of a transfer, by pair of devices; `routes[a * devices + b]`. Empty on the diagonal.
  std::vector<std::vector<int32_t>> routes;
};

class Cluster {
 public:
  static constexpr int32_t kMostDevices = 1024;
  static constexpr Bytes kMostMemory = Bytes(int64_t{1} << 52);  // 4 PiB, on a device.

  // Numbers nodes from 0 on without gaps, in the order of the numbers given. INVALID_ARGUMENT,
  // naming the field and device: no device or more than kMostDevices, memory or rates not positive
  // (or NaN), memory over kMostMemory, latencies over an hour, indices out of range, a pair of
  // devices without a route, duplicate device names.
  static absl::StatusOr<Cluster> Create(ClusterData data);

  const std::string& name() const { return data_.name; }
  std::span<const Device> devices() const { return data_.devices; }
  std::span<const DeviceKind> kinds() const { return data_.kinds; }
  std::span<const Link> links() const { return data_.links; }
  const Device& device(DeviceId id) const { return data_.devices[id.index()]; }
  const DeviceKind& kind_of(DeviceId id) const { return data_.kinds[device(id).kind]; }
  int32_t size() const { return static_cast<int32_t>(data_.devices.size()); }
  const Route& route(DeviceId from, DeviceId to) const {
    return routes_[from.index() * data_.devices.size() + to.index()];
  }
  const ClusterData& data() const { return data_; }

  // All devices are of one kind with one memory budget.
  bool Homogeneous() const;

 private:
  ClusterData data_;
  std::vector<Route> routes_;
};

// A regular cluster: `nodes` nodes of `devices_per_node` devices on a full-bisection network. Links
// are full duplex: each becomes two resources, "..out" and "..in". A transfer within a node
// occupies the sender's port out and the receiver's port in; one between nodes an uplink of either
// node.
struct HierarchicalSpec {
  std::string name;
  int32_t nodes = 1;
  int32_t devices_per_node = 1;
  DeviceKind kind;
  Bytes memory = 0;
  Link inside;   // Per device and direction: every device owns its port, e.g. NVLink.
  Link outside;  // Per uplink and direction.
  int32_t uplinks_per_node = 1;  // Devices share them evenly; one transfer uses one.
};
absl::StatusOr<Cluster> MakeHierarchical(const HierarchicalSpec& spec);

// The first `n` devices, with their links. n in [1, size].
Cluster Subcluster(const Cluster& cluster, int32_t n);
// These devices in this order, with their links: each once, one at least.
Cluster Subcluster(const Cluster& cluster, std::span<const DeviceId> devices);

}  // namespace stagewright
