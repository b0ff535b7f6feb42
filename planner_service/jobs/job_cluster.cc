#include "planner_service/jobs/job_cluster.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/wire/topology_proto.h"
#include "planner_service/jobs/job_links.h"

namespace stagewright {
namespace {

// Measured rates scatter; devices of one name this close together count as equal.
constexpr double kSameKindRatio = 1.5;

// How many times longer a device computes, and goes over memory, while the others of its machine
// do.
struct Slowdown {
  double product = 1, memory = 1;
};

// Threads that outnumber the cores get a share of them each, and what they do takes longer in
// shared caches and memory, as measured.
Slowdown SlowdownOf(const RegisteredDevice& device, const std::vector<RegisteredDevice>& devices,
                    const LinkTable& table) {
  const Crowd all = CrowdOf(device, devices);
  const CrowdFigure* alone = Find(table, {all.host_address, 1, all.threads_per_device});
  const CrowdFigure* together = Find(table, all);
  double threads = 0;
  for (const RegisteredDevice& other : devices) {
    if (other.host_address == device.host_address) threads += other.threads;
  }
  const double shared = device.host_cores > 0 ? std::max(1.0, threads / device.host_cores) : 1;
  if (alone == nullptr || together == nullptr) return {shared, shared};
  const auto ratio = [&](Nanos a, Nanos b) {
    return shared * std::max(1.0, static_cast<double>(a) / static_cast<double>(b));
  };
  return {ratio(together->product, alone->product), ratio(together->copy, alone->copy)};
}

std::vector<DeviceKind> SharedRates(const std::vector<RegisteredDevice>& devices,
                                    const LinkTable& table) {
  std::vector<DeviceKind> kinds;
  for (const RegisteredDevice& device : devices) {
    DeviceKind kind = FromProto(device.kind);
    if (device.threads > 0) {
      const Slowdown slower = SlowdownOf(device, devices, table);
      kind = WithSlowdown(WithFixedCosts(std::move(kind)), slower.product, slower.memory);
    }
    kinds.push_back(std::move(kind));
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

absl::StatusOr<Cluster> JobCluster(const std::vector<RegisteredDevice>& devices,
                                   const LinkTable& table) {
  ClusterData data;
  data.name = absl::StrCat(devices.size(), " registered devices, ", LinkSummary(devices, table));
  std::map<std::string, int32_t> hosts;
  const std::vector<int32_t> kind_of = GroupKinds(SharedRates(devices, table), data.kinds);
  for (size_t i = 0; i < devices.size(); ++i) {
    const RegisteredDevice& registered = devices[i];
    const int32_t host =
        hosts.try_emplace(registered.host_address, static_cast<int32_t>(hosts.size()))
            .first->second;
    data.devices.push_back(
        {registered.QualifiedName(), kind_of[i], host, Bytes(registered.device.memory_bytes())});
  }
  AddLinks(devices, table, data);
  return Cluster::Create(std::move(data));
}

}  // namespace stagewright
