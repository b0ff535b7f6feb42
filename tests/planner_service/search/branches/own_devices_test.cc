#include "planner_service/search/branches/own_devices.h"

#include <gtest/gtest.h>

#include "common/topology/uniform.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/search_case.h"

namespace stagewright {
namespace {

using testing::SearchCase;
using testing::Work;

// "none" where there is no draft.
std::string Text(const SearchCase& c, int64_t micro_batch, Replicas replicas) {
  std::optional<Draft> draft = DraftOnOwnDevices(
      OperatorCosts(c.problem), Decompose(c.problem.operators->dag()), micro_batch, replicas);
  if (!draft.has_value()) return "none";
  EXPECT_TRUE(SortStages(c.problem.operators->dag(), *draft));
  return ToString(*draft);
}

// So many branches of two operators, and a join that takes `join` times as long as one of them.
SearchCase Branches(int32_t branches, int64_t join, const std::string& cluster) {
  std::vector<Work> nodes(2 * branches + 1, {1000, 2000, 0, 0, {}});
  nodes.back().forward *= join;
  nodes.back().backward *= join;
  for (int32_t branch = 0; branch < branches; ++branch) {
    nodes[2 * branch + 1].after = {2 * branch};
    nodes.back().after.push_back(2 * branch + 1);
  }
  return SearchCase(testing::ProfiledGraph(nodes), *UniformPreset(cluster), 12);
}

TEST(OwnDevicesTest, WhatHasMostWorkForEachOfItsOwnIsNext) {
  EXPECT_EQ(CountsByWork({3, 1, 1}, 3), (std::vector<int32_t>{1, 1, 1}));
  EXPECT_EQ(CountsByWork({3, 1, 1}, 5), (std::vector<int32_t>{3, 1, 1}));
  EXPECT_EQ(CountsByWork({3, 1, 1}, 6), (std::vector<int32_t>{4, 1, 1}));
  EXPECT_EQ(CountsByWork({1, 1, 1}, 5), (std::vector<int32_t>{2, 2, 1}));
  EXPECT_EQ(CountsByWork({0, 0}, 3), (std::vector<int32_t>{2, 1}));
}

TEST(OwnDevicesTest, EachPartHasDevicesByItsWork) {
  // 4 + 4 of 11 of the work are the branches', 3 the join's.
  const SearchCase c = Branches(2, 2, "uniform:9");
  EXPECT_EQ(Text(c, 12, {9, 9}), "g b12 | 0-1@0,1,2 | 2-3@3,4,5 | 4@6,7,8");
}

TEST(OwnDevicesTest, RunsAreCutInSlicesForSoManyReplicas) {
  const SearchCase c = Branches(2, 4, "uniform:8");
  EXPECT_EQ(Text(c, 12, {1, 8}), "g b12 | 0@0 | 1@1 | 2@2 | 3@3 | 4@4");
  EXPECT_EQ(Text(c, 12, {2, 8}), "g b12 | 0-1@0,1 | 2-3@2,3 | 4@4,5");
}

TEST(OwnDevicesTest, WhatIsLightBetweenBranchesSharesAllDevicesOfThese) {
  // Two branches, a light join and two branches more.
  std::vector<Work> nodes(5, {10000, 20000, 0, 0, {}});
  nodes[2] = {100, 200, 0, 0, {0, 1}};
  nodes[3].after = nodes[4].after = {2};
  const SearchCase c(testing::ProfiledGraph(nodes), *UniformPreset("uniform:4"), 12);
  EXPECT_EQ(Text(c, 12, {4, 4}), "g b12 | 0@0 | 1@1 | 2@0,1,2,3 | 3@2 | 4@3");
}

TEST(OwnDevicesTest, LightBranchesHaveOneDeviceOfTheOthers) {
  std::vector<Work> nodes(5, {10000, 20000, 0, 0, {}});
  nodes[1] = nodes[2] = {100, 200, 0, 0, {}};
  nodes[4].after = {0, 1, 2, 3};
  const SearchCase c(testing::ProfiledGraph(nodes), *UniformPreset("uniform:3"), 12);
  EXPECT_EQ(Text(c, 12, {1, 3}), "g b12 | 0@0 | 1@1 | 2@0 | 3@1 | 4@2");
}

TEST(OwnDevicesTest, MorePartsThanDevicesHaveNoDraft) {
  EXPECT_EQ(Text(Branches(4, 1, "uniform:3"), 12, {1, 3}), "none");
}

TEST(OwnDevicesTest, DraftsOfRandomModelsHaveEveryOperatorOnce) {
  testing::Rng random(11);
  int made = 0;
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    const auto devices = static_cast<int32_t>(testing::Uniform(random, 1, 12));
    const auto replicas = static_cast<int32_t>(testing::Uniform(random, 1, devices));
    const SearchCase c(
        testing::RandomProfile(random, static_cast<int32_t>(testing::Uniform(random, 1, 20))),
        *UniformPreset("uniform:" + std::to_string(devices)), 12);
    std::optional<Draft> draft = DraftOnOwnDevices(
        OperatorCosts(c.problem), Decompose(c.problem.operators->dag()), 12, {replicas, devices});
    if (!draft.has_value()) continue;
    ++made;
    ASSERT_TRUE(SortStages(c.problem.operators->dag(), *draft));
    std::vector<int32_t> times(c.problem.operators->size(), 0);
    for (const DraftStage& stage : draft->stages) {
      EXPECT_FALSE(stage.devices.empty());
      for (int32_t op : stage.operators) ++times[op];
    }
    EXPECT_EQ(times, std::vector<int32_t>(times.size(), 1));
  }
  EXPECT_GT(made, 50);
}

}  // namespace
}  // namespace stagewright
