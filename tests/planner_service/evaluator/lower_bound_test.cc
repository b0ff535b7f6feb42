#include "planner_service/evaluator/lower_bound.h"

#include <gtest/gtest.h>

#include "planner_service/evaluator/evaluator.h"
#include "tests/support/planning_cases.h"

namespace stagewright {
namespace {

using testing::Draw;
using testing::FlatCluster;
using testing::ProfiledChain;
using testing::ProfiledGraph;
using testing::Random;

Nanos Bound(const Graph& graph, const Cluster& cluster, int64_t mini_batch) {
  const auto costs = MakeAnalyticCostModel(graph);
  return LowerBound(graph, OneOperatorPerNode(graph).value(), cluster, *costs, mini_batch);
}

// The bound gives up one part in 10^12 and rounds down.
void ExpectJustBelow(Nanos bound, Nanos exact) {
  EXPECT_LE(bound, exact);
  EXPECT_GE(bound, exact - 1);
}

TEST(LowerBoundTest, WorkOverDevices) {
  const Graph graph = ProfiledChain(6, {1000, 2000, 0, 0, {}});
  ExpectJustBelow(Bound(graph, FlatCluster(3), 30), 6 * 3000 * 30 / 3);
}

TEST(LowerBoundTest, APathThereAndBack) {
  // With a single sample nothing is parallel but the two branches.
  const Graph graph = ProfiledGraph({{1000, 2000, 0, 0, {}},
                                     {500, 500, 0, 0, {0}},
                                     {3000, 4000, 0, 0, {0}},
                                     {100, 200, 0, 0, {1, 2}}});
  ExpectJustBelow(Bound(graph, FlatCluster(4), 1), 1000 + 3000 + 100 + 2000 + 4000 + 200);
}

TEST(LowerBoundTest, ANodeWhoseGradientsCostTooMuchToSum) {
  // 1 GB of parameters take 1 s and more to sum; alone the node takes 0.3 s.
  const Graph graph = ProfiledGraph({{kMillisecond, 2 * kMillisecond, 0, 1'000'000'000, {}}});
  ExpectJustBelow(Bound(graph, FlatCluster(8), 100), 300 * kMillisecond);
  // Where summing is cheap, eight devices share the work.
  const Cluster fast = FlatCluster(8, 16 * kGiB, 0, 1e15);
  EXPECT_LT(Bound(graph, fast, 100), 40 * kMillisecond);
}

TEST(LowerBoundTest, FrozenNetworksHaveNoWayBack) {
  const Graph graph = ProfiledGraph({{1000, 0, 0, 0, {}}, {1000, 0, 0, 0, {0}}});
  ExpectJustBelow(Bound(graph, FlatCluster(2), 1), 2000);
}

TEST(LowerBoundTest, TheFastestKindCounts) {
  ClusterData data = FlatCluster(2).data();
  data.kinds.push_back(data.kinds[0]);
  data.kinds[1].name = "fast";
  data.kinds[1].flops_per_second *= 2;
  data.kinds[1].memory_bytes_per_second *= 2;
  data.devices[1].kind = 1;
  Random random(1);
  const Graph graph = testing::RandomNetwork(random, 10);
  EXPECT_LT(Bound(graph, Cluster::Create(data).value(), 64), Bound(graph, FlatCluster(2), 64));
}

// Every strategy that can be evaluated takes at least the bound.
TEST(LowerBoundTest, NoStrategyBeatsIt) {
  Random random(31);
  int judged = 0;
  int tight = 0;
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    const auto size = static_cast<int32_t>(Draw(random, 1, 20));
    const Graph graph = Draw(random, 0, 1) == 0 ? testing::RandomProfile(random, size)
                                                : testing::RandomNetwork(random, size);
    const Cluster cluster = testing::RandomCluster(random, 8);
    const OperatorGraph operators = OneOperatorPerNode(graph).value();
    const auto costs = MakeAnalyticCostModel(graph);
    const int64_t mini_batch = Draw(random, 1, 48);
    const Nanos bound = LowerBound(graph, operators, cluster, *costs, mini_batch);
    for (int j = 0; j < 10; ++j) {
      const Strategy strategy =
          testing::RandomStrategy(random, graph, operators, cluster, mini_batch);
      const auto evaluation = Evaluate(graph, cluster, *costs, strategy, {});
      if (!evaluation.ok()) continue;
      ++judged;
      ASSERT_GE(evaluation->iteration_time, bound);
      if (static_cast<double>(evaluation->iteration_time) < 1.3 * static_cast<double>(bound)) {
        ++tight;
      }
    }
  }
  EXPECT_GT(judged, 800);
  EXPECT_GT(tight, 50);  // It also says something.
}

}  // namespace
}  // namespace stagewright
