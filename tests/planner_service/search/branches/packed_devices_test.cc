#include "planner_service/search/branches/packed_devices.h"

#include <gtest/gtest.h>

#include "common/topology/uniform.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/search_case.h"
#include "tests/support/small_problems.h"

namespace stagewright {
namespace {

using testing::SearchCase;
using testing::Work;

// "none" where there is no draft.
std::string Text(const SearchCase& c, const Packing& packing) {
  std::optional<Draft> draft = DraftOnPackedDevices(
      OperatorCosts(c.problem), Decompose(c.problem.operators->dag()), 12, packing);
  if (!draft.has_value()) return "none";
  EXPECT_TRUE(SortStages(c.problem.operators->dag(), *draft));
  return ToString(*draft);
}

// Branches of one operator each and a join without work, on a cluster.
SearchCase Branches(const std::vector<int64_t>& work, const std::string& cluster) {
  std::vector<Work> nodes;
  Work join{0, 0, 0, 0, {}};
  for (int64_t w : work) {
    join.after.push_back(static_cast<int32_t>(nodes.size()));
    nodes.push_back({Nanos(1000 * w), Nanos(2000 * w), 0, 0, {}});
  }
  nodes.push_back(join);
  return SearchCase(testing::ProfiledGraph(nodes), *UniformPreset(cluster), 12);
}

TEST(PackedDevicesTest, TheLongestGoesFirstToWhoHasLeastToDo) {
  EXPECT_EQ(Text(Branches({3, 5, 4, 2, 2}, "uniform:2"), {1, 1, 1}),
            "g b12 | 0@1 | 1@0 | 2@1 | 3@0 | 4@0 | 5@1");
}

TEST(PackedDevicesTest, WhatIsTooLongHasAsManyReplicasAsItTakes) {
  // Four devices have 6 each; the last three fill up the fourth and then need several.
  const SearchCase c = Branches({6, 6, 6, 4, 2}, "uniform:4");
  EXPECT_EQ(Text(c, {1, 0, 4}), "g b12 | 0@0 | 1@1 | 2@2 | 3@3 | 4@3 | 5@0");
  const SearchCase uneven = Branches({5, 5, 5, 5, 4}, "uniform:4");
  EXPECT_EQ(Text(uneven, {1, 0, 4}), "g b12 | 0@0 | 1@1 | 2@2 | 3@3 | 4@0,1,2,3 | 5@0");
  EXPECT_EQ(Text(uneven, {1, 0.2, 4}), "g b12 | 0@0 | 1@1 | 2@2 | 3@3 | 4@0,1 | 5@2");
  EXPECT_EQ(Text(uneven, {1, 0, 2}), "g b12 | 0@0 | 1@1 | 2@2 | 3@3 | 4@0,1 | 5@2");
}

TEST(PackedDevicesTest, RunsAreCutInPieces) {
  // Two chains of four operators on two devices: each is due four.
  std::vector<Work> nodes(8, {1000, 2000, 0, 0, {}});
  for (int32_t i : {1, 2, 3, 5, 6, 7}) nodes[i].after = {i - 1};
  const SearchCase c(testing::ProfiledGraph(nodes), *UniformPreset("uniform:2"), 12);
  EXPECT_EQ(Text(c, {1, 0, 1}), "g b12 | 0-3@0 | 4-7@1");
  EXPECT_EQ(Text(c, {0.5, 0, 1}), "g b12 | 0-1@0 | 2-3@1 | 4-5@0 | 6-7@1");
}

TEST(PackedDevicesTest, LightBranchesAreOnePiece) {
  // Each device is due 100.
  EXPECT_EQ(Text(Branches({92, 92, 4, 4, 4, 4}, "uniform:2"), {1, 0.5, 1}),
            "g b12 | 0@0 | 1@1 | 2-3@0 | 4-5@1 | 6@0");
}

TEST(PackedDevicesTest, AFasterDeviceHasMore) {
  ClusterData data = UniformPreset("uniform:2")->data();
  data.kinds[0].flops_per_second = 1e12;
  data.kinds.push_back(data.kinds[0]);
  data.kinds[1].name = "fast";
  data.kinds[1].flops_per_second = 4e12;
  data.devices[1].kind = 1;
  SearchCase c = Branches({4, 4, 4, 4, 4}, "uniform:2");
  c.cluster = *Cluster::Create(data);
  const testing::RatedProfileCosts rated(c.graph);
  c.problem.costs = &rated;
  EXPECT_EQ(Text(c, {1, 0, 1}), "g b12 | 0@0 | 1@1 | 2@1 | 3@1 | 4@1 | 5@0");
}

TEST(PackedDevicesTest, ManyPiecesForFewDevicesHaveNoDraft) {
  EXPECT_EQ(Text(Branches(std::vector<int64_t>(9, 1), "uniform:2"), {1, 0, 1}), "none");
}

TEST(PackedDevicesTest, DraftsOfRandomModelsHaveEveryOperatorOnce) {
  testing::Rng random(11);
  int made = 0;
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    const auto devices = static_cast<int32_t>(testing::Uniform(random, 1, 12));
    const auto replicas = static_cast<int32_t>(testing::Uniform(random, 1, devices));
    const SearchCase c(
        testing::RandomProfile(random, static_cast<int32_t>(testing::Uniform(random, 1, 20))),
        *UniformPreset("uniform:" + std::to_string(devices)), 12);
    std::optional<Draft> draft =
        DraftOnPackedDevices(OperatorCosts(c.problem), Decompose(c.problem.operators->dag()), 12,
                             {testing::Uniform(random, 1, 4) / 4.0, 0.25, replicas});
    if (!draft.has_value()) continue;
    ++made;
    std::vector<int32_t> times(c.problem.operators->size(), 0);
    for (const DraftStage& stage : draft->stages) {
      EXPECT_FALSE(stage.devices.empty());
      EXPECT_LE(static_cast<int32_t>(stage.devices.size()), replicas);
      for (int32_t op : stage.operators) ++times[op];
    }
    EXPECT_EQ(times, std::vector<int32_t>(times.size(), 1));
  }
  EXPECT_GT(made, 50);
}

}  // namespace
}  // namespace stagewright
