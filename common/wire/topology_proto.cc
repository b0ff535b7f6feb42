#include "common/wire/topology_proto.h"

#include <utility>

#include "common/base/one_line.h"

namespace stagewright {
namespace {

// The wire's values are ours, one higher; 0 is none.
static_assert(static_cast<int>(ProductType::kFloat32) + 1 == v1::PRODUCT_TYPE_FP32);
static_assert(static_cast<int>(ProductType::kFloat16) + 1 == v1::PRODUCT_TYPE_FP16);
static_assert(static_cast<int>(ProductKind::kMatmul) + 1 == v1::PRODUCT_KIND_MATMUL);
static_assert(static_cast<int>(ProductKind::kAttention) + 1 == v1::PRODUCT_KIND_ATTENTION);

v1::EfficiencyCurve ToProto(const EfficiencyCurve& curve) {
  v1::EfficiencyCurve proto;
  if (curve.operators)
    proto.set_operators(static_cast<v1::ProductKind>(static_cast<int>(*curve.operators) + 1));
  if (curve.type) proto.set_type(static_cast<v1::ProductType>(static_cast<int>(*curve.type) + 1));
  for (const EfficiencyPoint& point : curve.points) {
    v1::EfficiencyPoint* out = proto.add_points();
    out->set_flops(point.flops);
    out->set_share(point.share);
  }
  return proto;
}

// A value that this version does not know stands for nothing that it asks for: its curve has no
// points, which CheckKind refuses.
EfficiencyCurve FromProto(const v1::EfficiencyCurve& proto) {
  EfficiencyCurve curve;
  if (proto.operators() < 0 || proto.operators() > v1::PRODUCT_KIND_ATTENTION || proto.type() < 0 ||
      proto.type() > v1::PRODUCT_TYPE_FP16)
    return curve;
  if (proto.operators() != 0) curve.operators = static_cast<ProductKind>(proto.operators() - 1);
  if (proto.type() != 0) curve.type = static_cast<ProductType>(proto.type() - 1);
  for (const v1::EfficiencyPoint& point : proto.points())
    curve.points.push_back({point.flops(), point.share()});
  return curve;
}

}  // namespace

v1::DeviceKind ToProto(const DeviceKind& kind) {
  v1::DeviceKind proto;
  proto.set_name(kind.name);
  proto.set_flops_per_second(kind.flops_per_second);
  proto.set_memory_bytes_per_second(kind.memory_bytes_per_second);
  proto.set_update_bytes_per_second(kind.update_bytes_per_second);
  proto.set_kernel_overhead_ns(kind.kernel_overhead.count());
  proto.set_half_efficiency_flops(kind.half_efficiency_flops);
  proto.set_pass_overhead_ns(kind.pass_overhead.count());
  proto.set_message_overhead_ns(kind.message_overhead.count());
  proto.set_step_overhead_ns(kind.step_overhead.count());
  proto.set_parameter_overhead_ns(kind.parameter_overhead.count());
  proto.set_reduction_overhead_ns(kind.reduction_overhead.count());
  proto.set_message_bytes_per_second(kind.message_bytes_per_second);
  proto.set_adds_gradients(kind.adds_gradients);
  proto.set_asynchronous(kind.asynchronous);
  proto.set_product_slowdown(kind.product_slowdown);
  proto.set_memory_slowdown(kind.memory_slowdown);
  proto.set_tf32_flops_per_second(kind.tf32_flops_per_second);
  proto.set_bf16_flops_per_second(kind.bf16_flops_per_second);
  proto.set_fp16_flops_per_second(kind.fp16_flops_per_second);
  proto.set_unaligned_slowdown(kind.unaligned_slowdown);
  for (const EfficiencyCurve& curve : kind.efficiency) *proto.add_efficiency() = ToProto(curve);
  return proto;
}

DeviceKind FromProto(const v1::DeviceKind& proto) {
  DeviceKind kind;
  kind.name = proto.name();
  kind.flops_per_second = proto.flops_per_second();
  kind.memory_bytes_per_second = proto.memory_bytes_per_second();
  kind.update_bytes_per_second = proto.update_bytes_per_second();
  kind.kernel_overhead = Nanos(proto.kernel_overhead_ns());
  kind.half_efficiency_flops = proto.half_efficiency_flops();
  kind.pass_overhead = Nanos(proto.pass_overhead_ns());
  kind.message_overhead = Nanos(proto.message_overhead_ns());
  kind.step_overhead = Nanos(proto.step_overhead_ns());
  kind.parameter_overhead = Nanos(proto.parameter_overhead_ns());
  kind.reduction_overhead = Nanos(proto.reduction_overhead_ns());
  kind.message_bytes_per_second = proto.message_bytes_per_second();
  kind.adds_gradients = proto.adds_gradients();
  kind.asynchronous = proto.asynchronous();
  if (proto.product_slowdown() != 0) kind.product_slowdown = proto.product_slowdown();
  if (proto.memory_slowdown() != 0) kind.memory_slowdown = proto.memory_slowdown();
  kind.tf32_flops_per_second = proto.tf32_flops_per_second();
  kind.bf16_flops_per_second = proto.bf16_flops_per_second();
  kind.fp16_flops_per_second = proto.fp16_flops_per_second();
  if (proto.unaligned_slowdown() != 0) kind.unaligned_slowdown = proto.unaligned_slowdown();
  for (const v1::EfficiencyCurve& curve : proto.efficiency())
    kind.efficiency.push_back(FromProto(curve));
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
