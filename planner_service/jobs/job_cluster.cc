#include "planner_service/jobs/job_cluster.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "common/wire/topology_proto.h"

namespace stagewright {
namespace {

constexpr double kMemoryBytesPerSecond = 5e9;
constexpr Nanos kMemoryLatency = 30 * kMicrosecond;
constexpr double kUplinkBytesPerSecond = 1.25e9;
constexpr Nanos kUplinkLatency = 50 * kMicrosecond;

bool SameKind(const DeviceKind& a, const DeviceKind& b) {
  return a.name == b.name && a.flops_per_second == b.flops_per_second &&
         a.memory_bytes_per_second == b.memory_bytes_per_second &&
         a.kernel_overhead == b.kernel_overhead &&
         a.half_efficiency_flops == b.half_efficiency_flops;
}

int32_t AddKind(const DeviceKind& kind, std::vector<DeviceKind>& kinds) {
  auto it = std::find_if(kinds.begin(), kinds.end(),
                         [&](const DeviceKind& other) { return SameKind(kind, other); });
  if (it == kinds.end()) it = kinds.insert(kinds.end(), kind);
  return static_cast<int32_t>(it - kinds.begin());
}

}  // namespace

absl::StatusOr<Cluster> JobCluster(const std::vector<RegisteredDevice>& devices) {
  ClusterData data;
  data.name = absl::StrCat(devices.size(), " registered devices");
  std::map<std::string, int32_t> hosts;
  std::vector<int32_t> port;          // Link of each device to its host's memory.
  std::map<int32_t, int32_t> uplink;  // Link of each host to the network.
  for (const RegisteredDevice& registered : devices) {
    const int32_t host =
        hosts.try_emplace(registered.host_address, static_cast<int32_t>(hosts.size()))
            .first->second;
    data.devices.push_back({registered.QualifiedName(),
                            AddKind(FromProto(registered.kind), data.kinds), host,
                            registered.device.memory_bytes()});
    port.push_back(static_cast<int32_t>(data.links.size()));
    data.links.push_back(
        {registered.QualifiedName() + "/memory", kMemoryLatency, kMemoryBytesPerSecond});
  }
  for (const auto& [address, host] : hosts) {
    uplink[host] = static_cast<int32_t>(data.links.size());
    data.links.push_back({address + "/uplink", kUplinkLatency, kUplinkBytesPerSecond});
  }
  const size_t n = devices.size();
  data.routes.resize(n * n);
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = 0; b < n; ++b) {
      if (a == b) continue;
      std::vector<int32_t>& route = data.routes[a * n + b];
      route = {port[a]};
      if (data.devices[a].node != data.devices[b].node) {
        route.push_back(uplink[data.devices[a].node]);
        route.push_back(uplink[data.devices[b].node]);
      }
    }
  }
  return Cluster::Create(std::move(data));
}

}  // namespace stagewright
