#include "tests/support/clusters.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/topology/cluster.h"

namespace stagewright::testing {
namespace {

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  CHECK(value.ok());
  return *std::move(value);
}

DeviceKind TestKind(const std::string& name, double flops) {
  DeviceKind kind;
  kind.name = name;
  kind.flops_per_second = flops;
  kind.memory_bytes_per_second = 1e12;
  return kind;
}

}  // namespace

Cluster FlatCluster(int32_t size, Bytes memory, Nanos latency, double bytes_per_second) {
  HierarchicalSpec spec;
  spec.name = "flat";
  spec.devices_per_node = size;
  spec.kind = TestKind("test", 1e12);
  spec.memory = memory;
  spec.inside = {"port", latency, bytes_per_second};
  spec.outside = {"uplink", latency, bytes_per_second};
  return Must(MakeHierarchical(spec));
}

Cluster TestCluster(int32_t size) {
  ClusterData data;
  data.name = "test";
  data.kinds.push_back({"test", 1e12, 1e12, 0, 0});
  data.links.push_back({"link", 0, 1e9});
  for (int32_t d = 0; d < size; ++d) data.devices.push_back({absl::StrCat("d", d), 0, d, kGiB});
  data.routes.assign(static_cast<size_t>(size) * size, {0});
  for (int32_t d = 0; d < size; ++d) data.routes[static_cast<size_t>(d) * size + d].clear();
  auto cluster = Cluster::Create(std::move(data));
  CHECK(cluster.ok());
  return *std::move(cluster);
}

Cluster RandomCluster(Rng& rng, int32_t most) {
  HierarchicalSpec spec;
  spec.name = "random";
  spec.devices_per_node = static_cast<int32_t>(Uniform(rng, 1, std::min(most, 4)));
  spec.nodes = static_cast<int32_t>(Uniform(rng, 1, most / spec.devices_per_node));
  spec.kind = TestKind("slow", 1e11);
  spec.kind.kernel_overhead = Uniform(rng, 0, 10) * kMicrosecond;
  spec.memory = Uniform(rng, 1, 64) * 64 * kMiB;
  spec.inside = {"port", Uniform(rng, 0, 5) * kMicrosecond, 1e10};
  spec.outside = {"uplink", Uniform(rng, 0, 50) * kMicrosecond, 1e9};
  Cluster cluster = Must(MakeHierarchical(spec));
  if (Uniform(rng, 0, 1) == 0) return cluster;
  ClusterData data = cluster.data();
  data.kinds.push_back(TestKind("fast", 2e11));
  for (Device& device : data.devices) device.kind = static_cast<int32_t>(Uniform(rng, 0, 1));
  return Must(Cluster::Create(std::move(data)));
}

}  // namespace stagewright::testing
