#include "planner_service/evaluator/what_if.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/topology/presets.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::FlatCluster;
using testing::MakeStrategy;
using testing::ProfiledChain;
using testing::ProfiledGraph;

TEST(WhatIfTest, DoubledClustersRepeatRoutes) {
  testing::Rng random(3);
  for (int round = 0; round < 20; ++round) {
    const Cluster cluster = testing::RandomCluster(random, 6);
    const auto twice = Doubled(cluster);
    ASSERT_TRUE(twice.ok()) << twice.status();
    const int32_t n = cluster.size();
    ASSERT_EQ(twice->size(), 2 * n);
    for (int32_t a = 0; a < 2 * n; ++a) {
      EXPECT_EQ(twice->device(DeviceId(a)).memory, cluster.device(DeviceId(a % n)).memory);
      for (int32_t b = 0; b < 2 * n; ++b) {
        if (a % n == b % n) continue;
        EXPECT_EQ(twice->route(DeviceId(a), DeviceId(b)).TransferTime(kMiB),
                  cluster.route(DeviceId(a % n), DeviceId(b % n)).TransferTime(kMiB));
      }
    }
  }
  EXPECT_EQ(Doubled(FlatCluster(1))->size(), 2);
  EXPECT_EQ(Doubled(ClusterPreset("uniform:513").value()).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(WhatIfTest, OperatorsMoveWithTheirEdges) {
  // n0 -> n1 -> n2 and n0 -> n2.
  const Graph graph =
      ProfiledGraph({{1, 1, 1, 0, {}}, {1, 1, 1, 0, {0}}, {1, 1, 1, 0, {0, 1}}, {1, 1, 1, 0, {2}}});
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const Strategy strategy = MakeStrategy(graph, {{0}, {1}, {2, 3}}, {{0}, {1}, {2}}, 4, 1);
  const auto moved = MoveOperator(graph, operators, strategy, OperatorId(2), StageId(1));
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_THAT(moved->stages[1].nodes, ElementsAre(NodeId(1), NodeId(2)));
  EXPECT_THAT(moved->stages[2].nodes, ElementsAre(NodeId(3)));
  EXPECT_THAT(moved->edges,
              ElementsAre(StageEdge{StageId(0), StageId(1)}, StageEdge{StageId(1), StageId(2)}));
  EXPECT_FALSE(MoveOperator(graph, operators, strategy, OperatorId(1), StageId(2)).ok());
  EXPECT_EQ(
      std::string(
          MoveOperator(graph, operators, strategy, OperatorId(3), StageId(1)).status().message()),
      "stage 1 would wait for stage 2");
}

TEST(WhatIfTest, UnconstrainedStrategiesKeepWhatTheyHave) {
  const Graph graph = ProfiledChain(2, {1, 1, 1, 0, {}});
  Strategy strategy = MakeStrategy(graph, {{0}, {1}}, {{0}, {1}}, 8, 1);
  strategy.stages[0].schedule.in_flight = 1;
  strategy.stages[1].schedule.in_flight = 5;
  strategy.stages[1].recompute = true;
  const Strategy free = Unconstrained(graph, strategy);
  EXPECT_EQ(free.stages[0].schedule.in_flight, 2);
  EXPECT_EQ(free.stages[1].schedule.in_flight, 5);
  EXPECT_FALSE(free.stages[1].recompute);
}

TEST(WhatIfTest, MicroBatchesAreHalvedForReplicasToo) {
  const Graph graph = ProfiledChain(2, {1, 1, 1, 0, {}});
  const Strategy strategy = MakeStrategy(graph, {{0}, {1}}, {{0}, {1, 2}}, 8, 4);
  const auto half = HalfMicroBatches(strategy);
  ASSERT_TRUE(half.ok());
  EXPECT_EQ(half->stages[1].micro_batch, 2);
  EXPECT_FALSE(HalfMicroBatches(*half).ok());
}

TEST(WhatIfTest, FasterDevicesHalveTimesOnly) {
  const Graph graph = ProfiledChain(1, {1000, 2000, 10, 4, {}});
  const auto costs = MakeAnalyticCostModel(graph);
  const auto fast = TwiceAsFast(*costs);
  EXPECT_EQ(fast->Time(NodeId(0), {}, 2).forward, 1000);
  EXPECT_EQ(fast->Time(NodeId(0), {}, 2).backward, 2000);
  EXPECT_EQ(fast->Time(NodeId(0), {}, 2).backward_weight, 1000);
  EXPECT_EQ(fast->SavedBytes(NodeId(0), 2), costs->SavedBytes(NodeId(0), 2));
}

}  // namespace
}  // namespace stagewright
