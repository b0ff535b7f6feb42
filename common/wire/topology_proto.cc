#include "common/wire/topology_proto.h"

#include <utility>

#include "common/base/one_line.h"

namespace stagewright {

v1::DeviceKind ToProto(const DeviceKind& kind) {
  v1::DeviceKind proto;
  proto.set_name(kind.name);
  proto.set_flops_per_second(kind.flops_per_second);
  proto.set_memory_bytes_per_second(kind.memory_bytes_per_second);
  proto.set_kernel_overhead_ns(kind.kernel_overhead.count());
  proto.set_half_efficiency_flops(kind.half_efficiency_flops);
  proto.set_pass_overhead_ns(kind.pass_overhead.count());
  proto.set_message_overhead_ns(kind.message_overhead.count());
  proto.set_step_overhead_ns(kind.step_overhead.count());
  return proto;
}

DeviceKind FromProto(const v1::DeviceKind& proto) {
  DeviceKind kind;
  kind.name = proto.name();
  kind.flops_per_second = proto.flops_per_second();
  kind.memory_bytes_per_second = proto.memory_bytes_per_second();
  kind.kernel_overhead = Nanos(proto.kernel_overhead_ns());
  kind.half_efficiency_flops = proto.half_efficiency_flops();
  kind.pass_overhead = Nanos(proto.pass_overhead_ns());
  kind.message_overhead = Nanos(proto.message_overhead_ns());
  kind.step_overhead = Nanos(proto.step_overhead_ns());
  return kind;
}

v1::Device ToProto(const Device& device) {
  v1::Device proto;
  proto.set_name(device.name);
  proto.set_kind(device.kind);
  proto.set_node(device.node);
  proto.set_memory_bytes(device.memory.count());
  return proto;
}

Device FromProto(const v1::Device& proto) {
  return {proto.name(), proto.kind(), proto.node(), Bytes(proto.memory_bytes())};
}

v1::Cluster ToProto(const Cluster& cluster) {
  v1::Cluster proto;
  proto.set_name(cluster.name());
  for (const DeviceKind& kind : cluster.kinds()) *proto.add_kinds() = ToProto(kind);
  for (const Device& device : cluster.devices()) *proto.add_devices() = ToProto(device);
  for (const Link& link : cluster.links()) {
    v1::Link* out = proto.add_links();
    out->set_name(link.name);
    out->set_latency_ns(link.latency.count());
    out->set_bytes_per_second(link.bytes_per_second);
  }
  for (int32_t from = 0; from < cluster.size(); ++from) {
    for (int32_t to = 0; to < cluster.size(); ++to) {
      if (from == to) continue;
      v1::Route* out = proto.add_routes();
      out->set_from(from);
      out->set_to(to);
      for (int32_t link : cluster.route(DeviceId(from), DeviceId(to)).links) out->add_links(link);
    }
  }
  return proto;
}

absl::StatusOr<Cluster> FromProto(const v1::Cluster& proto) {
  ClusterData data;
  data.name = proto.name();
  for (const v1::DeviceKind& kind : proto.kinds()) data.kinds.push_back(FromProto(kind));
  for (const v1::Device& device : proto.devices()) data.devices.push_back(FromProto(device));
  for (const v1::Link& link : proto.links()) {
    data.links.push_back({link.name(), Nanos(link.latency_ns()), link.bytes_per_second()});
  }
  const auto n = static_cast<size_t>(proto.devices_size());
  if (proto.devices_size() > Cluster::kMostDevices) {
    return absl::InvalidArgumentError(absl::StrCat("cluster.devices: ", n, " are more than the ",
                                                   Cluster::kMostDevices, " supported"));
  }
  data.routes.resize(n * n);
  for (int i = 0; i < proto.routes_size(); ++i) {
    const v1::Route& route = proto.routes(i);
    if (route.from() < 0 || route.to() < 0 || route.from() >= proto.devices_size() ||
        route.to() >= proto.devices_size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cluster.routes[", i, "]: device ", route.from(), " or ", route.to(), " does not exist"));
    }
    data.routes[static_cast<size_t>(route.from()) * n + static_cast<size_t>(route.to())].assign(
        route.links().begin(), route.links().end());
  }
  auto cluster = Cluster::Create(std::move(data));
  if (!cluster.ok()) return OneLine(cluster.status());
  return cluster;
}

}  // namespace stagewright
