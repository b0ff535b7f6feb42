#include "planner_service/planners/pfeife/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/planner_service/planners/pfeife/pfeife_cases.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/small_problems.h"

namespace stagewright::pfeife {
namespace {

using ::testing::ElementsAre;
using testing::FlatCluster;
using testing::ProfiledChain;

TEST(SettingsTest, MicroBatchSizesDivideTheMiniBatch) {
  const Graph graph = ProfiledChain(2, {});
  const auto sizes = [&](int64_t mini_batch, const PlanOptions& options) {
    Problem problem;
    problem.graph = &graph;
    problem.mini_batch = mini_batch;
    return SizesThatFill(problem, 4, options);
  };
  EXPECT_THAT(sizes(64, {}), ElementsAre(16, 8, 4, 2));
  EXPECT_THAT(sizes(7, {}), ElementsAre(1));
  EXPECT_THAT(sizes(36, {}), ElementsAre(9, 4, 2, 1));
  EXPECT_THAT(sizes(64, {.micro_batch = 32}), ElementsAre(32));
}

TEST(SettingsTest, LoopsAndDevicesWithinTheOptions) {
  const Case c(ProfiledChain(10, {10, 20, 0, 0, {}}), FlatCluster(4), 8);
  std::set<int32_t> loops;
  for (const LoopedSetting& setting : Settings(c.problem, {})) {
    loops.insert(setting.loops);
    EXPECT_LE(setting.loops * setting.devices.size(), 10u);
  }
  EXPECT_THAT(loops, ElementsAre(1, 2, 3));  // Three only on two devices.
  for (const LoopedSetting& setting : Settings(c.problem, {.max_loops = 1}))
    EXPECT_EQ(setting.loops, 1);
  for (const LoopedSetting& setting : Settings(c.problem, {.max_stages = 3})) {
    EXPECT_LE(setting.loops * setting.devices.size(), 3u);
  }
  int exact = 0;
  for (const LoopedSetting& setting : Settings(c.problem, {.num_stages = 6})) {
    EXPECT_EQ(setting.loops * setting.devices.size(), 6u);
    ++exact;
  }
  EXPECT_GT(exact, 0);
}

TEST(SettingsTest, WhereDevicesDifferTheFastOnesComeFirstOrLast) {
  ClusterData data = FlatCluster(4).data();
  data.kinds.push_back(data.kinds[0]);
  data.kinds[1].name = "fast";
  data.kinds[1].flops_per_second *= 2;
  data.devices[2].kind = 1;
  Case c(ProfiledChain(10, {1000, 2000, 0, 0, {}}), Cluster::Create(data).value(), 8);
  const testing::RatedProfileCosts costs(c.graph);
  c.problem.costs = &costs;
  std::set<std::vector<int32_t>> lists;
  for (const LoopedSetting& setting : Settings(c.problem, {})) lists.insert(setting.devices);
  EXPECT_TRUE(lists.count({0, 1, 2, 3}));
  EXPECT_TRUE(lists.count({2, 0, 1, 3}));
  EXPECT_TRUE(lists.count({3, 1, 0, 2}));
  EXPECT_TRUE(lists.count({2}));
}

TEST(SettingsTest, LongStepsAreShortened) {
  EXPECT_EQ(Shortened(20, 4), 20);
  EXPECT_EQ(Shortened(1000, 4), 64);
  EXPECT_EQ(Shortened(1000, 16), 128);
  EXPECT_EQ(Shortened(1000, 3) % 3, 0);
}

TEST(SettingsTest, ShapesAreAmongThePossible) {
  for (int32_t loops : {1, 2}) {
    const auto possible = PossibleShapes(8, loops, 16);
    const auto shapes = Shapes(8, loops, 16);
    EXPECT_FALSE(shapes.empty());
    for (const LoopedShape& shape : shapes) {
      EXPECT_THAT(possible, ::testing::Contains(shape)) << ToString(shape);
    }
  }
}

}  // namespace
}  // namespace stagewright::pfeife
