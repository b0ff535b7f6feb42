#include "planner_service/search/placement.h"

#include <gtest/gtest.h>

#include <set>

#include "common/topology/presets.h"
#include "tests/support/clusters.h"
#include "tests/support/random.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::Uniform;

std::vector<std::vector<int32_t>> Place(const Cluster& cluster,
                                        const std::vector<int32_t>& replicas) {
  std::vector<std::vector<int32_t>> ids;
  for (const auto& devices : PlaceStages(cluster, replicas)) {
    ids.emplace_back();
    for (DeviceId d : devices) ids.back().push_back(d.value());
  }
  return ids;
}

TEST(PlacementTest, NeighboursShareNodes) {
  const Cluster cluster = *ClusterPreset("summit:2");
  EXPECT_EQ(Place(cluster, {1, 1, 2, 1}),
            (std::vector<std::vector<int32_t>>{{0}, {1}, {2, 3}, {4}}));
}

TEST(PlacementTest, ReplicasStayInsideANodeAndHolesAreFilledLater) {
  const Cluster cluster = *ClusterPreset("summit:2");
  EXPECT_EQ(Place(cluster, {3, 4, 1}),
            (std::vector<std::vector<int32_t>>{{0, 1, 2}, {4, 5, 6, 7}, {3}}));
}

TEST(PlacementTest, WideStagesSpillOver) {
  const Cluster cluster = *ClusterPreset("summit:2");
  EXPECT_EQ(Place(cluster, {2, 6}),
            (std::vector<std::vector<int32_t>>{{0, 1}, {2, 3, 4, 5, 6, 7}}));
}

TEST(PlacementTest, SpreadReplicasShareNoNodeUntilTheyMust) {
  const Cluster cluster = *ClusterPreset("summit:4");
  EXPECT_EQ(PlaceStages(cluster, {4, 4, 4, 4}, {false, false, false, true})[3],
            (std::vector<DeviceId>{DeviceId(3), DeviceId(7), DeviceId(11), DeviceId(15)}));
  EXPECT_EQ(PlaceStages(cluster, {1, 2}, {false, true})[1],
            (std::vector<DeviceId>{DeviceId(3), DeviceId(11)}));
  const auto wide = PlaceStages(cluster, {6, 10}, {true, false});
  std::vector<int> on_node(4, 0);
  for (DeviceId d : wide[0]) ++on_node[cluster.device(d).node];
  for (int count : on_node) EXPECT_TRUE(count == 1 || count == 2) << count;
}

TEST(PlacementTest, DeviceSetsAreDisjointAndOfTheSizeAskedFor) {
  Rng random(3);
  for (int round = 0; round < 300; ++round) {
    const Cluster cluster = testing::RandomCluster(random, 12);
    std::vector<int32_t> replicas;
    for (int32_t left = cluster.size(); left > 0;) {
      replicas.push_back(static_cast<int32_t>(Uniform(random, 1, left)));
      left -= replicas.back();
      if (Uniform(random, 0, 4) == 0) break;
    }
    std::vector<bool> spread;
    for (size_t s = 0; s < replicas.size(); ++s) spread.push_back(Uniform(random, 0, 3) == 0);
    const auto placed = PlaceStages(cluster, replicas, spread);
    std::set<DeviceId> used;
    for (size_t s = 0; s < replicas.size(); ++s) {
      EXPECT_EQ(static_cast<int32_t>(placed[s].size()), replicas[s]);
      for (DeviceId device : placed[s]) EXPECT_TRUE(used.insert(device).second);
    }
  }
}

}  // namespace
}  // namespace stagewright
