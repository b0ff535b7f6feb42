#include "common/topology/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Devices a and b on node 0, c on node 1; a slow link to c.
ClusterData Small() {
  ClusterData data;
  data.name = "small";
  data.kinds = {{"fast", 1e12, 1e11, 1000, 0}};
  data.devices = {{"a", 0, 0, kGiB}, {"b", 0, 0, kGiB}, {"c", 0, 1, kGiB}};
  data.links = {{"bus", 100, 1e9}, {"wire", 2000, 1e8}};
  data.routes = {{}, {0}, {0, 1}, {0}, {}, {0, 1}, {1, 0}, {1, 0}, {}};
  return data;
}

TEST(Cluster, RoutesSumLatencyAndTakeTheSlowestLink) {
  const auto cluster = Cluster::Create(Small());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const Route& near = cluster->route(DeviceId(0), DeviceId(1));
  EXPECT_EQ(near.latency, 100);
  EXPECT_EQ(near.bytes_per_second, 1e9);
  EXPECT_EQ(near.TransferTime(0), 100);
  EXPECT_EQ(near.TransferTime(1'000'000), 1'000'100);
  const Route& far = cluster->route(DeviceId(0), DeviceId(2));
  EXPECT_EQ(far.latency, 2100);
  EXPECT_EQ(far.TransferTime(1), 2110);
  EXPECT_EQ(cluster->route(DeviceId(2), DeviceId(2)).TransferTime(kGiB), 0);
}

TEST(Cluster, NodesAreNumberedWithoutGaps) {
  ClusterData data = Small();
  data.devices[0].node = data.devices[1].node = 7;
  data.devices[2].node = std::numeric_limits<int32_t>::max();
  const auto cluster = Cluster::Create(std::move(data));
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->device(DeviceId(0)).node, 0);
  EXPECT_EQ(cluster->device(DeviceId(1)).node, 0);
  EXPECT_EQ(cluster->device(DeviceId(2)).node, 1);
}

struct BadCluster {
  const char* name;
  std::function<void(ClusterData&)> spoil;
  const char* message;
};

class BadClusterTest : public ::testing::TestWithParam<BadCluster> {};

TEST_P(BadClusterTest, IsRefusedWithItsReason) {
  ClusterData data = Small();
  GetParam().spoil(data);
  const auto cluster = Cluster::Create(std::move(data));
  EXPECT_EQ(cluster.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cluster.status().message(), GetParam().message);
}

const BadCluster kBadClusters[] = {
    {"NoDevice", [](ClusterData& c) { c.devices.clear(); }, "devices: the cluster has no device"},
    {"TooMany", [](ClusterData& c) { c.devices.resize(2000); },
     "devices: 2000 are more than the 1024 supported"},
    {"NoMemory", [](ClusterData& c) { c.devices[1].memory = 0; },
     "devices[1] \"b\".memory_bytes: 0 is not positive"},
    {"AllMemory", [](ClusterData& c) { c.devices[1].memory = std::numeric_limits<Bytes>::max(); },
     "devices[1] \"b\".memory_bytes: 9223372036854775807 is more than 4194304 GiB"},
    {"NegativeMemory", [](ClusterData& c) { c.devices[1].memory = -5; },
     "devices[1] \"b\".memory_bytes: -5 is not positive"},
    {"NoName", [](ClusterData& c) { c.devices[2].name = ""; }, "devices[2] \"\".name is empty"},
    {"SameName", [](ClusterData& c) { c.devices[2].name = "a"; },
     "devices[2] \"a\".name is used twice"},
    {"UnknownKind", [](ClusterData& c) { c.devices[0].kind = 1; },
     "devices[0] \"a\".kind: kind 1 does not exist"},
    {"NegativeNode", [](ClusterData& c) { c.devices[0].node = -1; },
     "devices[0] \"a\".node: -1 is negative"},
    {"NoFlops", [](ClusterData& c) { c.kinds[0].flops_per_second = 0; },
     "kinds[0] \"fast\".flops_per_second: 0 is not a positive number"},
    {"NanFlops", [](ClusterData& c) { c.kinds[0].flops_per_second = std::nan(""); },
     "kinds[0] \"fast\".flops_per_second: nan is not a positive number"},
    {"InfiniteMemoryRate", [](ClusterData& c) { c.kinds[0].memory_bytes_per_second = INFINITY; },
     "kinds[0] \"fast\".memory_bytes_per_second: inf is not a positive number"},
    {"NegativeOverhead", [](ClusterData& c) { c.kinds[0].kernel_overhead = -1; },
     "kinds[0] \"fast\".kernel_overhead_ns: -1 ns is negative or over an hour"},
    {"FasterUnaligned", [](ClusterData& c) { c.kinds[0].unaligned_slowdown = 0.5; },
     "kinds[0] \"fast\".unaligned_slowdown: 0.5 is not from 1 to 10000"},
    {"NanHalf", [](ClusterData& c) { c.kinds[0].half_efficiency_flops = std::nan(""); },
     "kinds[0] \"fast\".half_efficiency_flops: nan is negative or not a number"},
    {"NegativeLatency", [](ClusterData& c) { c.links[1].latency = -7; },
     "links[1] \"wire\".latency_ns: -7 ns is negative or over an hour"},
    {"NegativeRate", [](ClusterData& c) { c.links[1].bytes_per_second = -1; },
     "links[1] \"wire\".bytes_per_second: -1 is not a positive number"},
    {"SameLink", [](ClusterData& c) { c.links[1].name = "bus"; },
     "links[1] \"bus\".name is used twice"},
    {"NoRoute", [](ClusterData& c) { c.routes[5].clear(); }, "routes: b -> c: there is no route"},
    {"UnknownLink", [](ClusterData& c) { c.routes[1] = {4}; },
     "routes: a -> b: link 4 does not exist"},
    {"LinkTwice",
     [](ClusterData& c) {
       c.routes[1] = {0, 0};
     },
     "routes: a -> b: link \"bus\" occurs twice"},
    {"RouteToItself", [](ClusterData& c) { c.routes[4] = {0}; },
     "routes: b -> b: a device needs no route to itself"},
    {"RoutesMissing", [](ClusterData& c) { c.routes.pop_back(); },
     "routes: 8 given, 9 needed for 3 devices"},
};

INSTANTIATE_TEST_SUITE_P(Cluster, BadClusterTest, ::testing::ValuesIn(kBadClusters),
                         [](const auto& test) { return test.param.name; });

HierarchicalSpec Spec() {
  HierarchicalSpec spec;
  spec.name = "spec";
  spec.nodes = 2;
  spec.devices_per_node = 4;
  spec.kind = {"fast", 1e12, 1e11, 1000, 0};
  spec.memory = kGiB;
  spec.inside = {"", 500, 4e9};
  spec.outside = {"", 3000, 1e9};
  spec.uplinks_per_node = 2;
  return spec;
}

std::vector<std::string> LinkNames(const Cluster& cluster, int32_t from, int32_t to) {
  std::vector<std::string> names;
  for (int32_t link : cluster.route(DeviceId(from), DeviceId(to)).links) {
    names.push_back(cluster.links()[link].name);
  }
  return names;
}

TEST(Hierarchical, PortsInsideUplinksBetween) {
  const auto cluster = MakeHierarchical(Spec());
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->size(), 8);
  EXPECT_TRUE(cluster->Homogeneous());
  EXPECT_EQ(cluster->device(DeviceId(5)).name, "node1/device1");
  EXPECT_EQ(cluster->device(DeviceId(5)).node, 1);
  EXPECT_THAT(LinkNames(*cluster, 0, 3), ElementsAre("node0/device0/out", "node0/device3/in"));
  EXPECT_THAT(LinkNames(*cluster, 3, 0), ElementsAre("node0/device3/out", "node0/device0/in"));
  EXPECT_THAT(LinkNames(*cluster, 1, 6), ElementsAre("node0/uplink0/out", "node1/uplink1/in"));
  EXPECT_EQ(cluster->route(DeviceId(0), DeviceId(3)).latency, 500);
  EXPECT_EQ(cluster->route(DeviceId(0), DeviceId(7)).latency, 3000);
  EXPECT_EQ(cluster->route(DeviceId(0), DeviceId(7)).bytes_per_second, 1e9);
}

TEST(Hierarchical, OneDeviceNeedsNoLinks) {
  HierarchicalSpec spec = Spec();
  spec.nodes = spec.devices_per_node = spec.uplinks_per_node = 1;
  const auto cluster = MakeHierarchical(spec);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_THAT(cluster->links(), IsEmpty());
}

TEST(Hierarchical, RefusesBadSpecifications) {
  auto message = [](const std::function<void(HierarchicalSpec&)>& spoil) {
    HierarchicalSpec spec = Spec();
    spoil(spec);
    return std::string(MakeHierarchical(spec).status().message());
  };
  EXPECT_EQ(message([](auto& s) { s.nodes = 0; }), "nodes: 0 is not positive");
  EXPECT_EQ(message([](auto& s) { s.devices_per_node = 0; }),
            "devices_per_node: 0 is not positive: the cluster has no device");
  EXPECT_EQ(message([](auto& s) { s.nodes = 2'000'000'000; }),
            "nodes: 8000000000 devices are more than the 1024 supported");
  EXPECT_EQ(message([](auto& s) { s.uplinks_per_node = 5; }),
            "uplinks_per_node: 5 is not between 1 and devices_per_node");
  EXPECT_EQ(message([](auto& s) { s.memory = -1; }), "memory_bytes: -1 is not positive");
  EXPECT_EQ(message([](auto& s) { s.inside.bytes_per_second = std::nan(""); }),
            "inside.bytes_per_second: nan is not a positive number");
  EXPECT_EQ(message([](auto& s) { s.outside.latency = -1; }),
            "outside.latency_ns: -1 ns is negative or over an hour");
  EXPECT_EQ(message([](auto& s) { s.kind.name = ""; }), "kind.name is empty");
}

TEST(Subcluster, KeepsRoutesAndDropsUnusedLinks) {
  const auto whole = MakeHierarchical(Spec());
  ASSERT_TRUE(whole.ok());
  for (int32_t n = 1; n <= whole->size(); ++n) {
    const Cluster part = Subcluster(*whole, n);
    ASSERT_EQ(part.size(), n);
    for (int32_t a = 0; a < n; ++a) {
      EXPECT_EQ(part.device(DeviceId(a)).name, whole->device(DeviceId(a)).name);
      for (int32_t b = 0; b < n; ++b) EXPECT_EQ(LinkNames(part, a, b), LinkNames(*whole, a, b));
    }
  }
  EXPECT_THAT(Subcluster(*whole, 1).links(), IsEmpty());
}

TEST(Subcluster, TakesTheDevicesThatAreNamedInTheirOrder) {
  const auto whole = MakeHierarchical(Spec());
  ASSERT_TRUE(whole.ok());
  const DeviceId last(whole->size() - 1), first(0);
  const Cluster part = Subcluster(*whole, std::vector<DeviceId>{last, first});
  ASSERT_EQ(part.size(), 2);
  EXPECT_EQ(part.device(DeviceId(0)).name, whole->device(last).name);
  EXPECT_EQ(part.device(DeviceId(1)).name, whole->device(first).name);
  EXPECT_EQ(LinkNames(part, 0, 1), LinkNames(*whole, whole->size() - 1, 0));
  EXPECT_EQ(LinkNames(part, 1, 0), LinkNames(*whole, 0, whole->size() - 1));
}

TEST(Cluster, HomogeneousLooksAtKindAndMemory) {
  ClusterData data = Small();
  EXPECT_TRUE(Cluster::Create(data)->Homogeneous());
  data.devices[2].memory = 2 * kGiB;
  EXPECT_FALSE(Cluster::Create(data)->Homogeneous());
  data = Small();
  data.kinds.push_back({"slow", 1e11, 1e10, 1000, 0});
  data.devices[1].kind = 1;
  EXPECT_FALSE(Cluster::Create(data)->Homogeneous());
}

}  // namespace
}  // namespace stagewright
