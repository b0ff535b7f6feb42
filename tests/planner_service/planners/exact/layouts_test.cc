#include "planner_service/planners/exact/layouts.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/clusters.h"

namespace stagewright {
namespace {

using testing::FlatCluster;

Cluster TwoNodes(int32_t devices_per_node) {
  HierarchicalSpec spec;
  spec.name = "nodes";
  spec.nodes = 2;
  spec.devices_per_node = devices_per_node;
  spec.kind = FlatCluster(1).kinds()[0];
  spec.memory = kGiB;
  spec.inside = {"port", 0, 1e10};
  spec.outside = {"uplink", 0, 1e9};
  return MakeHierarchical(spec).value();
}

TEST(LayoutsTest, EqualDevicesAreInterchangeable) {
  EXPECT_EQ(Automorphisms(FlatCluster(4)).size(), 24u);
  // Only the sizes of the sets matter: compositions of 1, 2, 3 and 4.
  EXPECT_EQ(Layouts(FlatCluster(4), 4, 100).size(), 1u + 2 + 4 + 8);
  EXPECT_EQ(Layouts(FlatCluster(6), 6, 100).size(), 63u);
  EXPECT_EQ(Layouts(FlatCluster(4), 4, 1).size(), 4u);
  EXPECT_EQ(Layouts(FlatCluster(4), 1, 100).size(), 4u);
}

TEST(LayoutsTest, NodesMoveAsAWhole) {
  EXPECT_EQ(Automorphisms(TwoNodes(2)).size(), 8u);
  // One device; two of a node or of both; three; all.
  EXPECT_EQ(Layouts(TwoNodes(2), 1, 100).size(), 5u);
}

TEST(LayoutsTest, KindsMemoriesAndLinksTellDevicesApart) {
  ClusterData data = FlatCluster(4).data();
  data.devices[3].memory /= 2;
  EXPECT_EQ(Automorphisms(Cluster::Create(data).value()).size(), 6u);
  data.kinds.push_back(data.kinds[0]);
  data.kinds[1].name = "other";
  data.devices[2].kind = 1;
  EXPECT_EQ(Automorphisms(Cluster::Create(data).value()).size(), 2u);
  data.links[0].bytes_per_second /= 2;
  EXPECT_EQ(Automorphisms(Cluster::Create(data).value()).size(), 1u);
}

TEST(LayoutsTest, EverySequenceOfSetsIsThereUpToSymmetry) {
  const Cluster cluster = TwoNodes(2);
  const auto symmetries = Automorphisms(cluster);
  std::set<std::vector<std::set<int32_t>>> covered;
  for (const DeviceLayout& layout : Layouts(cluster, 4, 4)) {
    for (const auto& to : symmetries) {
      std::vector<std::set<int32_t>> image;
      for (const auto& devices : layout) {
        std::set<int32_t>& set = image.emplace_back();
        for (DeviceId d : devices) set.insert(to[d.index()]);
      }
      covered.insert(std::move(image));
    }
  }
  // Ordered sequences of disjoint sets that are not empty: 4 + 6 + 4 + 1 of one set, ...
  int64_t count = 0;
  for (int stages = 1; stages <= 4; ++stages) {
    // Maps of four devices onto the stages and "idle" that leave no stage out.
    for (int code = 0, end = 1; code < end; ++code) {
      end = 1;
      for (int d = 0; d < 4; ++d) end *= stages + 1;
      std::set<int> used;
      for (int d = 0, rest = code; d < 4; ++d, rest /= stages + 1) used.insert(rest % (stages + 1));
      used.erase(stages);
      count += used.size() == static_cast<size_t>(stages) ? 1 : 0;
    }
  }
  EXPECT_EQ(static_cast<int64_t>(covered.size()), count);
}

}  // namespace
}  // namespace stagewright
