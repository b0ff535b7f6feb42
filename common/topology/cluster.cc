#include "common/topology/cluster.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "common/base/check.h"
#include "common/topology/preset_device.h"

namespace stagewright {
namespace {

constexpr Nanos kLongestLatency = 3600 * kSecond;

absl::Status Invalid(absl::string_view where, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(where, what));
}

absl::Status CheckRate(double value, absl::string_view where, absl::string_view field) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return Invalid(where, absl::StrCat(".", field, ": ", value, " is not a positive number"));
}

absl::Status CheckLatency(Nanos value, absl::string_view where, absl::string_view field) {
  if (value >= 0 && value <= kLongestLatency) return absl::OkStatus();
  return Invalid(where, absl::StrCat(".", field, ": ", value, " ns is negative or over an hour"));
}

std::string Where(absl::string_view list, size_t index, absl::string_view name) {
  return absl::StrCat(list, "[", index, "] \"", name, "\"");
}

absl::Status CheckLink(const Link& link, absl::string_view where) {
  RETURN_IF_ERROR(CheckLatency(link.latency, where, "latency_ns"));
  return CheckRate(link.bytes_per_second, where, "bytes_per_second");
}

absl::Status CheckDevice(const ClusterData& data, size_t index) {
  const Device& device = data.devices[index];
  const std::string where = Where("devices", index, device.name);
  if (device.name.empty()) return Invalid(where, ".name is empty");
  if (device.kind < 0 || device.kind >= static_cast<int32_t>(data.kinds.size())) {
    return Invalid(where, absl::StrCat(".kind: kind ", device.kind, " does not exist"));
  }
  if (device.node < 0) return Invalid(where, absl::StrCat(".node: ", device.node, " is negative"));
  if (device.memory <= 0) {
    return Invalid(where, absl::StrCat(".memory_bytes: ", device.memory, " is not positive"));
  }
  if (device.memory > Cluster::kMostMemory) {
    return Invalid(where, absl::StrCat(".memory_bytes: ", device.memory, " is more than ",
                                       FormatBytes(Cluster::kMostMemory)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Route> MakeRoute(const ClusterData& data, size_t from, size_t to) {
  const auto wrong = [&](absl::string_view what) {
    return Invalid(absl::StrCat("routes: ", data.devices[from].name, " -> ", data.devices[to].name),
                   what);
  };
  Route route;
  route.links = data.routes[from * data.devices.size() + to];
  if (from == to) {
    if (!route.links.empty()) return wrong(": a device needs no route to itself");
    return route;
  }
  if (route.links.empty()) return wrong(": there is no route");
  route.bytes_per_second = std::numeric_limits<double>::infinity();
  for (int32_t link : route.links) {
    if (link < 0 || link >= static_cast<int32_t>(data.links.size())) {
      return wrong(absl::StrCat(": link ", link, " does not exist"));
    }
    if (std::count(route.links.begin(), route.links.end(), link) > 1) {
      return wrong(absl::StrCat(": link \"", data.links[link].name, "\" occurs twice"));
    }
    route.latency += data.links[link].latency;
    route.bytes_per_second = std::min(route.bytes_per_second, data.links[link].bytes_per_second);
  }
  return route;
}

// Numbers nodes from 0 on, in the order of the numbers that they have.
void NumberNodes(std::vector<Device>& devices) {
  std::vector<int32_t> nodes;
  for (const Device& device : devices) nodes.push_back(device.node);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  for (Device& device : devices) {
    const auto place = std::lower_bound(nodes.begin(), nodes.end(), device.node);
    device.node = static_cast<int32_t>(place - nodes.begin());
  }
}

template <typename T>
absl::Status CheckUniqueNames(const std::vector<T>& items, absl::string_view list) {
  absl::flat_hash_set<absl::string_view> names;
  names.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    if (!names.insert(items[i].name).second) {
      return Invalid(Where(list, i, items[i].name), ".name is used twice");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Nanos Route::TransferTime(Bytes bytes) const {
  if (links.empty()) return 0;
  return latency + Nanos(std::ceil(static_cast<double>(bytes) / bytes_per_second * 1e9));
}

absl::StatusOr<Cluster> Cluster::Create(ClusterData data) {
  const size_t n = data.devices.size();
  if (n == 0) return absl::InvalidArgumentError("devices: the cluster has no device");
  if (n > static_cast<size_t>(kMostDevices)) {
    return absl::InvalidArgumentError(
        absl::StrCat("devices: ", n, " are more than the ", kMostDevices, " supported"));
  }
  for (size_t i = 0; i < data.kinds.size(); ++i) {
    RETURN_IF_ERROR(CheckKind(data.kinds[i], Where("kinds", i, data.kinds[i].name)));
  }
  for (size_t i = 0; i < n; ++i) RETURN_IF_ERROR(CheckDevice(data, i));
  for (size_t i = 0; i < data.links.size(); ++i) {
    const Link& link = data.links[i];
    // There may be a million: only what is wrong needs a name.
    if (!CheckLink(link, "").ok()) return CheckLink(link, Where("links", i, link.name));
  }
  RETURN_IF_ERROR(CheckUniqueNames(data.kinds, "kinds"));
  RETURN_IF_ERROR(CheckUniqueNames(data.devices, "devices"));
  RETURN_IF_ERROR(CheckUniqueNames(data.links, "links"));
  if (data.routes.size() != n * n) {
    return absl::InvalidArgumentError(absl::StrCat("routes: ", data.routes.size(), " given, ",
                                                   n * n, " needed for ", n, " devices"));
  }
  NumberNodes(data.devices);
  Cluster cluster;
  cluster.routes_.reserve(n * n);
  for (size_t from = 0; from < n; ++from) {
    for (size_t to = 0; to < n; ++to) {
      ASSIGN_OR_RETURN(Route route, MakeRoute(data, from, to));
      cluster.routes_.push_back(std::move(route));
    }
  }
  cluster.data_ = std::move(data);
  return cluster;
}

bool Cluster::Homogeneous() const {
  const Device& first = data_.devices[0];
  return std::all_of(data_.devices.begin(), data_.devices.end(), [&](const Device& device) {
    return device.kind == first.kind && device.memory == first.memory;
  });
}

absl::StatusOr<Cluster> MakeHierarchical(const HierarchicalSpec& spec) {
  if (spec.nodes < 1) {
    return Invalid("nodes", absl::StrCat(": ", spec.nodes, " is not positive"));
  }
  if (spec.devices_per_node < 1) {
    return Invalid("devices_per_node", absl::StrCat(": ", spec.devices_per_node,
                                                    " is not positive: the cluster has no device"));
  }
  if (spec.uplinks_per_node < 1 || spec.uplinks_per_node > spec.devices_per_node) {
    return Invalid("uplinks_per_node", absl::StrCat(": ", spec.uplinks_per_node,
                                                    " is not between 1 and devices_per_node"));
  }
  const int64_t n = int64_t{spec.nodes} * spec.devices_per_node;
  if (n > Cluster::kMostDevices) {
    return Invalid("nodes", absl::StrCat(": ", n, " devices are more than the ",
                                         Cluster::kMostDevices, " supported"));
  }
  RETURN_IF_ERROR(CheckKind(spec.kind, "kind"));
  if (spec.memory <= 0)
    return Invalid("memory_bytes", absl::StrCat(": ", spec.memory, " is not positive"));
  RETURN_IF_ERROR(CheckLatency(spec.inside.latency, "inside", "latency_ns"));
  RETURN_IF_ERROR(CheckRate(spec.inside.bytes_per_second, "inside", "bytes_per_second"));
  RETURN_IF_ERROR(CheckLatency(spec.outside.latency, "outside", "latency_ns"));
  RETURN_IF_ERROR(CheckRate(spec.outside.bytes_per_second, "outside", "bytes_per_second"));

  ClusterData data;
  data.name = spec.name;
  data.kinds = {spec.kind};
  // The whole latency lies on the way out, so that a route's sum is the figure given.
  auto add_pair = [&](const std::string& name, const Link& link) {
    data.links.push_back({name + "/out", link.latency, link.bytes_per_second});
    data.links.push_back({name + "/in", 0, link.bytes_per_second});
    return static_cast<int32_t>(data.links.size()) - 2;
  };
  std::vector<int32_t> port(n), uplink(n);  // Way out; way in is the next.
  for (int32_t node = 0; node < spec.nodes; ++node) {
    const std::string prefix = absl::StrCat("node", node);
    std::vector<int32_t> uplinks;
    for (int32_t u = 0; spec.nodes > 1 && u < spec.uplinks_per_node; ++u) {
      uplinks.push_back(add_pair(absl::StrCat(prefix, "/uplink", u), spec.outside));
    }
    for (int32_t d = 0; d < spec.devices_per_node; ++d) {
      const int32_t index = node * spec.devices_per_node + d;
      const std::string name = PresetDevice(node, d);
      data.devices.push_back({name, 0, node, spec.memory});
      if (spec.devices_per_node > 1) port[index] = add_pair(name, spec.inside);
      if (spec.nodes > 1)
        uplink[index] = uplinks[d * spec.uplinks_per_node / spec.devices_per_node];
    }
  }
  data.routes.resize(n * n);
  for (int64_t a = 0; a < n; ++a) {
    for (int64_t b = 0; b < n; ++b) {
      if (a == b) continue;
      const auto& way = data.devices[a].node == data.devices[b].node ? port : uplink;
      data.routes[a * n + b] = {way[a], way[b] + 1};
    }
  }
  return Cluster::Create(std::move(data));
}

Cluster Subcluster(const Cluster& cluster, int32_t n) {
  CHECK(n >= 1 && n <= cluster.size());
  std::vector<DeviceId> devices;
  for (int32_t d = 0; d < n; ++d) devices.push_back(DeviceId(d));
  return Subcluster(cluster, devices);
}

Cluster Subcluster(const Cluster& cluster, std::span<const DeviceId> devices) {
  ClusterData data = cluster.data();
  data.devices.clear();
  data.routes.clear();
  std::vector<int32_t> number(data.links.size(), -1);
  for (const DeviceId a : devices) {
    data.devices.push_back(cluster.device(a));
    for (const DeviceId b : devices) {
      data.routes.push_back(cluster.route(a, b).links);
      for (int32_t link : data.routes.back()) number[link] = 0;
    }
  }
  std::vector<Link> kept;
  for (size_t i = 0; i < number.size(); ++i) {
    if (number[i] < 0) continue;
    number[i] = static_cast<int32_t>(kept.size());
    kept.push_back(data.links[i]);
  }
  data.links = std::move(kept);
  for (auto& route : data.routes) {
    for (int32_t& link : route) link = number[link];
  }
  auto sub = Cluster::Create(std::move(data));
  CHECK(sub.ok());
  return *std::move(sub);
}

}  // namespace stagewright
