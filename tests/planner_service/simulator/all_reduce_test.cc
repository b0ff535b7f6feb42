#include <gtest/gtest.h>

#include "planner_service/simulator/durations.h"
#include "tests/support/planning_cases.h"

namespace stagewright {
namespace {

using testing::FlatCluster;

std::vector<DeviceId> Devices(std::initializer_list<int32_t> ids) {
  std::vector<DeviceId> devices;
  for (int32_t id : ids) devices.push_back(DeviceId(id));
  return devices;
}

// Nodes of two devices: a byte per nanosecond inside, a tenth of that between them.
Cluster Nodes(int32_t nodes, Nanos latency = 0) {
  HierarchicalSpec spec;
  spec.nodes = nodes;
  spec.devices_per_node = 2;
  spec.kind = FlatCluster(1).kinds()[0];
  spec.memory = kGiB;
  spec.inside = {"port", 0, 1e9};
  spec.outside = {"uplink", latency, 1e8};
  return MakeHierarchical(spec).value();
}

TEST(RingAllReduceTest, FollowsItsFormula) {
  const Cluster cluster = FlatCluster(4, kGiB, 10, 1e9);
  // 2 * 3 / 4 * 1000 bytes at a byte per nanosecond, and 6 latencies.
  EXPECT_EQ(RingAllReduceTime(cluster, Devices({0, 1, 2, 3}), 1000), 1500 + 6 * 10);
  EXPECT_EQ(RingAllReduceTime(cluster, Devices({2}), 1000), 0);
}

TEST(RingAllReduceTest, EveryStepIsAMessageOutAndOneIn) {
  ClusterData data = FlatCluster(4, kGiB, 10, 1e9).data();
  data.kinds[0].message_overhead = 7;
  const Cluster cluster = Cluster::Create(data).value();
  EXPECT_EQ(RingAllReduceTime(cluster, Devices({0, 1, 2, 3}), 1000), 1500 + 6 * (10 + 2 * 7));
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
  ClusterData data = FlatCluster(4, kGiB, 0, 1e9).data();
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

}  // namespace
}  // namespace stagewright
