#include "planner_service/jobs/job_cluster.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "common/wire/topology_proto.h"

namespace stagewright {
namespace {

constexpr double kMemoryBytesPerSecond = 5e9;
constexpr Nanos kMemoryLatency = 30 * kMicrosecond;
constexpr double kUplinkBytesPerSecond = 1.25e9;
constexpr Nanos kUplinkLatency = 50 * kMicrosecond;

// Measured rates scatter; devices of one name this close together count as equal.
constexpr double kSameKindRatio = 1.5;

// Devices whose threads outnumber the cores of their machine get a share of them each.
std::vector<DeviceKind> SharedRates(const std::vector<RegisteredDevice>& devices) {
  std::map<std::string, int32_t> threads;
  for (const RegisteredDevice& device : devices) threads[device.host_address] += device.threads;
  std::vector<DeviceKind> kinds;
  for (const RegisteredDevice& device : devices) {
    DeviceKind kind = FromProto(device.kind);
    if (device.threads > 0 && device.host_cores > 0) {
      const double share =
          std::min(1.0, static_cast<double>(device.host_cores) / threads[device.host_address]);
      kind.flops_per_second *= share;
      kind.memory_bytes_per_second *= share;
      kind.kernel_overhead = static_cast<Nanos>(static_cast<double>(kind.kernel_overhead) / share);
    }
    kinds.push_back(device.threads > 0 ? WithFixedCosts(std::move(kind)) : std::move(kind));
  }
  return kinds;
}

// Kinds of the devices, and each device's index among them: devices of one name whose speeds are
// close share the rates of the middle one, others of that name become "name-2", "name-3", ...
std::vector<int32_t> GroupKinds(const std::vector<DeviceKind>& devices,
                                std::vector<DeviceKind>& kinds) {
  std::vector<size_t> order(devices.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(devices[a].name, -devices[a].flops_per_second, a) <
           std::tuple(devices[b].name, -devices[b].flops_per_second, b);
  });
  std::vector<int32_t> kind_of(devices.size());
  std::map<std::string, int> groups;
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const DeviceKind& fastest = devices[order[begin]];
    while (end < order.size() && devices[order[end]].name == fastest.name &&
           devices[order[end]].flops_per_second * kSameKindRatio >= fastest.flops_per_second) {
      kind_of[order[end++]] = static_cast<int32_t>(kinds.size());
    }
    kinds.push_back(devices[order[(begin + end) / 2]]);
    const int group = ++groups[fastest.name];
    if (group > 1) absl::StrAppend(&kinds.back().name, "-", group);
  }
  return kind_of;
}

}  // namespace

absl::StatusOr<Cluster> JobCluster(const std::vector<RegisteredDevice>& devices) {
  ClusterData data;
  data.name = absl::StrCat(devices.size(), " registered devices");
  std::map<std::string, int32_t> hosts;
  std::vector<int32_t> port;          // Link of each device to its host's memory.
  std::map<int32_t, int32_t> uplink;  // Link of each host to the network.
  const std::vector<int32_t> kind_of = GroupKinds(SharedRates(devices), data.kinds);
  for (size_t i = 0; i < devices.size(); ++i) {
    const RegisteredDevice& registered = devices[i];
    const int32_t host =
        hosts.try_emplace(registered.host_address, static_cast<int32_t>(hosts.size()))
            .first->second;
    data.devices.push_back(
        {registered.QualifiedName(), kind_of[i], host, Bytes(registered.device.memory_bytes())});
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
