#include "common/cost/collectives.h"

#include <gtest/gtest.h>

#include <vector>

namespace stagewright {
namespace {

std::vector<DeviceId> Devices(std::initializer_list<int32_t> ids) {
  std::vector<DeviceId> devices;
  for (int32_t id : ids) devices.push_back(DeviceId(id));
  return devices;
}

DeviceKind Kind() {
  DeviceKind kind;
  kind.name = "test";
  kind.flops_per_second = 1e12;
  kind.memory_bytes_per_second = 1e12;
  return kind;
}

// One node; every device owns its port.
Cluster FlatCluster(int32_t size, Nanos latency, double bytes_per_second) {
  HierarchicalSpec spec;
  spec.devices_per_node = size;
  spec.kind = Kind();
  spec.memory = kGiB;
  spec.inside = {"port", latency, bytes_per_second};
  spec.outside = {"uplink", latency, bytes_per_second};
  return MakeHierarchical(spec).value();
}

// Nodes of two devices: a byte per nanosecond inside, a tenth of that between them.
Cluster Nodes(int32_t nodes, Nanos latency = 0) {
  HierarchicalSpec spec;
  spec.nodes = nodes;
  spec.devices_per_node = 2;
  spec.kind = Kind();
  spec.memory = kGiB;
  spec.inside = {"port", 0, 1e9};
  spec.outside = {"uplink", latency, 1e8};
  return MakeHierarchical(spec).value();
}

TEST(RingAllReduceTest, FollowsItsFormula) {
  const Cluster cluster = FlatCluster(4, 10, 1e9);
  // 2 * 3 / 4 * 1000 bytes at a byte per nanosecond, and 6 latencies.
  EXPECT_EQ(RingAllReduceTime(cluster, Devices({0, 1, 2, 3}), 1000), 1500 + 6 * 10);
  EXPECT_EQ(RingAllReduceTime(cluster, Devices({2}), 1000), 0);
}

TEST(RingAllReduceTest, EveryStepIsAMessageOutAndOneIn) {
  ClusterData data = FlatCluster(4, 10, 1e9).data();
  data.kinds[0].message_overhead = 7;
  const Cluster cluster = Cluster::Create(data).value();
  EXPECT_EQ(RingAllReduceTime(cluster, Devices({0, 1, 2, 3}), 1000), 1500 + 6 * (10 + 2 * 7));
}

TEST(RingAllReduceTest, EveryStepWaitsForACore) {
  ClusterData data = FlatCluster(4, 10, 1e9).data();
  data.kinds[0].reduction_overhead = 500;
  const Cluster cluster = Cluster::Create(data).value();
  EXPECT_EQ(RingAllReduceTime(cluster, Devices({0, 1, 2, 3}), 1000), 1500 + 6 * (10 + 500));
}

TEST(RingAllReduceTest, TheSlowestRouteDecides) {
  const Cluster cluster = Nodes(2, 100);
  EXPECT_EQ(RingAllReduceTime(cluster, Devices({0, 1}), 1000), 1000);
  EXPECT_EQ(RingAllReduceTime(cluster, Devices({1, 2}), 1000),
            10000 + 2 * cluster.route(DeviceId(1), DeviceId(2)).latency);
}

TEST(RingAllReduceTest, TheRingGoesNodeByNode) {
  // Devices of two nodes in turn; the order of ids would cross the uplinks at every hop.
  ClusterData data = Nodes(2).data();
  std::swap(data.devices[1], data.devices[2]);
  const size_t n = data.devices.size();
  const auto swapped = [](size_t i) { return i == 1 ? 2 : i == 2 ? 1 : i; };
  auto routes = data.routes;
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = 0; b < n; ++b) routes[a * n + b] = data.routes[swapped(a) * n + swapped(b)];
  }
  data.routes = routes;
  const Cluster cluster = Cluster::Create(data).value();
  EXPECT_EQ(RingAllReduceTime(cluster, Devices({0, 1, 2, 3}), 1000),
            RingAllReduceTime(Nodes(2), Devices({0, 1, 2, 3}), 1000));
}

TEST(RingAllReduceTest, HopsOverOneLinkShareIt) {
  ClusterData data = FlatCluster(4, 0, 1e9).data();
  data.links = {{"bus", 0, 1e9}};
  for (auto& route : data.routes) {
    if (!route.empty()) route = {0};
  }
  const Cluster bus = Cluster::Create(data).value();
  EXPECT_EQ(RingAllReduceTime(bus, Devices({0, 1, 2, 3}), 1000), 4 * 1500);
}

TEST(HierarchicalAllReduceTest, SumsInsideBetweenAndInsideAgain) {
  const Cluster cluster = Nodes(2);
  // A half of the bytes inside, twice; two rings of a half of the bytes share the uplinks.
  EXPECT_EQ(HierarchicalAllReduceTime(cluster, Devices({0, 1, 2, 3}), 1000), 2 * 500 + 2 * 5000);
  EXPECT_EQ(RingAllReduceTime(cluster, Devices({0, 1, 2, 3}), 1000), 15000);
  EXPECT_EQ(AllReduceTime(cluster, Devices({0, 1, 2, 3}), 1000), 11000);
}

TEST(HierarchicalAllReduceTest, NodesOfDifferentSize) {
  // One ring between the nodes carries everything.
  EXPECT_EQ(HierarchicalAllReduceTime(Nodes(2), Devices({0, 1, 2}), 1000), 2 * 500 + 2 * 5000);
}

TEST(HierarchicalAllReduceTest, IsARingInsideOneNode) {
  EXPECT_EQ(HierarchicalAllReduceTime(Nodes(2), Devices({2, 3}), 1000), 1000);
  EXPECT_EQ(AllReduceTime(Nodes(2), Devices({2}), 1000), 0);
}

TEST(HierarchicalAllReduceTest, HasFewerLatencies) {
  const Cluster cluster = Nodes(8, 1000);
  std::vector<DeviceId> all;
  for (const Device& device : cluster.devices())
    all.push_back(DeviceId(static_cast<int64_t>(&device - cluster.devices().data())));
  const Nanos latency = cluster.route(DeviceId(0), DeviceId(2)).latency;
  EXPECT_EQ(HierarchicalAllReduceTime(cluster, all, 0), 2 * 7 * latency);
  EXPECT_EQ(RingAllReduceTime(cluster, all, 0), 2 * 15 * latency);
  EXPECT_EQ(AllReduceTime(cluster, all, 0), 2 * 7 * latency);
}

TEST(ShareExchangeTime, TwoMakeAnAllReduce) {
  for (const Cluster& cluster : {FlatCluster(6, 1'000, 1e9), Nodes(3, 500)}) {
    std::vector<DeviceId> devices;
    for (int32_t d = 0; d < cluster.size(); ++d) devices.push_back(DeviceId(d));
    const AllReduceLines lines = HalfOf(FitAllReduceLines(cluster, devices));
    for (const int64_t bytes : {0, 1'000, 123'456'789}) {
      const Nanos half = ShareExchangeTime(cluster, devices, Bytes(bytes));
      const Nanos whole = AllReduceTime(cluster, devices, Bytes(bytes));
      EXPECT_GE(2 * half, whole);
      EXPECT_LE(2 * half, whole + 1);
      EXPECT_NEAR(lines.Time(Bytes(bytes)), static_cast<double>(half), 2);
    }
  }
}

TEST(FitAllReduce, IsLatencyAndBytesApart) {
  const Cluster cluster = FlatCluster(4, 10, 1e9);
  const AllReduceLine line = FitAllReduce(cluster, Devices({0, 1, 2, 3}));
  EXPECT_DOUBLE_EQ(line.latency, 60);
  EXPECT_NEAR(line.per_byte, 1.5, 1e-9);
  const AllReduceLine ring = FitAllReduce(Nodes(2), Devices({0, 1, 2, 3}), RingAllReduceTime);
  EXPECT_NEAR(ring.per_byte, 15, 1e-9);
  EXPECT_NEAR(FitAllReduce(Nodes(2), Devices({0, 1, 2, 3})).per_byte, 11, 1e-9);
}

TEST(LeastAllReduceTime, IsNeverMoreThanWhatAnAllReduceTakes) {
  for (Nanos latency : {Nanos(0), Nanos(100), Nanos(70000)}) {
    const Cluster cluster = Nodes(4, latency);
    for (int32_t count = 1; count <= cluster.size(); ++count) {
      std::vector<DeviceId> devices;
      for (int32_t d = 0; d < count; ++d) devices.emplace_back(d);
      const FastestExchange fastest = FastestOf(cluster, devices);
      for (Bytes bytes : {Bytes(0), Bytes(1), Bytes(999), Bytes(12345678)}) {
        const double least = LeastAllReduceTime(bytes, count, fastest);
        if (bytes == 0 || count == 1) {
          EXPECT_EQ(least, 0);
        }
        EXPECT_LE(least, static_cast<double>(AllReduceTime(cluster, devices, bytes)));
      }
    }
  }
  // 2 * 3 / 4 of the bytes, and the latency of two messages, one after the other.
  const Cluster flat = FlatCluster(4, 10, 1e9);
  EXPECT_DOUBLE_EQ(LeastAllReduceTime(1000, 4, FastestOf(flat, Devices({0, 1, 2, 3}))),
                   1500 + 2 * 10 - 3);
}

}  // namespace
}  // namespace stagewright
