#include "planner_service/search/placement.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/planning_cases.h"

namespace stagewright {
namespace {

using testing::Draw;
using testing::Random;

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

TEST(PlacementTest, DeviceSetsAreDisjointAndOfTheSizeAskedFor) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    const Cluster cluster = testing::RandomCluster(random, 12);
    std::vector<int32_t> replicas;
    for (int32_t left = cluster.size(); left > 0;) {
      replicas.push_back(static_cast<int32_t>(Draw(random, 1, left)));
      left -= replicas.back();
      if (Draw(random, 0, 4) == 0) break;
    }
    const auto placed = PlaceStages(cluster, replicas);
    std::set<DeviceId> used;
    for (size_t s = 0; s < replicas.size(); ++s) {
      EXPECT_EQ(static_cast<int32_t>(placed[s].size()), replicas[s]);
      for (DeviceId device : placed[s]) EXPECT_TRUE(used.insert(device).second);
    }
  }
}

}  // namespace
}  // namespace stagewright
