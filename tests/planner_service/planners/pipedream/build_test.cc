#include "planner_service/planners/pipedream/build.h"

#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "common/strategy/check_strategy.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright::pipedream {
namespace {

TEST(PipeDreamBuildTest, InFlightIsNoamOrTheDepth) {
  EXPECT_EQ(AsynchronousInFlight({7, 1}), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(AsynchronousInFlight({1, 1, 1, 1}), (std::vector<int64_t>{4, 3, 2, 1}));
  EXPECT_EQ(AsynchronousInFlight({2, 1, 1}), (std::vector<int64_t>{3, 2, 1}));
  EXPECT_EQ(AsynchronousInFlight({1, 7}), (std::vector<int64_t>{8, 1}));
  // No stage has more in flight than the one before it: it could never start its first backward.
  EXPECT_EQ(AsynchronousInFlight({3, 1, 4}), (std::vector<int64_t>{3, 3, 1}));
}

TEST(PipeDreamBuildTest, StagesOfTwoLevelsTakeWholeNodes) {
  const Graph graph = testing::ProfiledChain(4, {1000, 2000, kKiB, kKiB, {}});
  HierarchicalSpec spec;
  spec.name = "nodes";
  spec.nodes = 3;
  spec.devices_per_node = 2;
  spec.kind = {"test", 1e12, 1e12, 0, 0};
  spec.memory = 16 * kGiB;
  spec.inside = {"inside", 0, 1e11};
  spec.outside = {"outside", 0, 1e9};
  const Cluster cluster = *MakeHierarchical(spec);
  const auto costs = MakeAnalyticCostModel(graph);
  const OperatorGraph operators = *OneOperatorPerNode(graph);
  const Problem problem{&graph, &operators, &cluster, costs.get(), 8, Optimizer::kSgd};
  const auto& order = operators.dag().order();
  const StageOracle oracle(problem, std::vector<OperatorId>(order.begin(), order.end()));
  const std::vector<PlannedStage> stages = {
      {{0, 1}, 2, {{{0}, 1, {}}, {{1}, 1, {}}}},
      {{2, 3}, 1, {{{2, 3}, 2, {}}}},
  };
  const Strategy strategy = BuildStrategy(oracle, stages, 4, /*asynchronous=*/false);
  EXPECT_TRUE(CheckStrategy(graph, cluster, strategy).ok());
  ASSERT_EQ(strategy.stages.size(), 3u);
  using Devices = std::vector<DeviceId>;
  EXPECT_EQ(strategy.stages[0].devices, (Devices{DeviceId(0), DeviceId(2)}));
  EXPECT_EQ(strategy.stages[1].devices, (Devices{DeviceId(1), DeviceId(3)}));
  EXPECT_EQ(strategy.stages[2].devices, (Devices{DeviceId(4), DeviceId(5)}));
  EXPECT_EQ(ToString(stages), "[0-1]x2([0]x1 [1]x1) [2-3]x1([2-3]x2)");
}

}  // namespace
}  // namespace stagewright::pipedream
