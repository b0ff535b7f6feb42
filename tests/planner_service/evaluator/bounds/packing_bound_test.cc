#include "planner_service/evaluator/bounds/packing_bound.h"

#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::FlatCluster;

// Nodes beside each other, of so many ms a sample and 1 GB of parameters.
double Millis(const std::vector<int64_t>& nodes, int32_t devices, bool asynchronous = false,
              double known = 0) {
  std::vector<testing::Work> works;
  for (int64_t ms : nodes)
    works.push_back({ms * kMillisecond, ms * kMillisecond, 0, 1'000'000'000, {}});
  const Graph graph = testing::ProfiledGraph(works);
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const Cluster cluster = FlatCluster(devices);
  const auto costs = MakeAnalyticCostModel(graph);
  const BoundProblem problem =
      MakeBoundProblem(graph, operators, cluster, *costs, 10, Optimizer::kSgd);
  return BoundPacking(problem, known * 1e6, asynchronous) * 1e-6;
}

TEST(PackingBoundTest, TwoOfThreeShareADevice) {
  // Sums take a second; 20 ms of work for each ms.
  EXPECT_DOUBLE_EQ(Millis({5, 6, 7}, 2), 220);
  EXPECT_DOUBLE_EQ(Millis({5, 5, 5, 4}, 3), 180);
}

TEST(PackingBoundTest, ThreeOfFiveShareADevice) {
  EXPECT_DOUBLE_EQ(Millis({4, 4, 4, 4, 4}, 2), 240);
  EXPECT_DOUBLE_EQ(Millis({4, 4, 4, 4}, 2), 160);
}

TEST(PackingBoundTest, TheLargestIsOnADeviceOfItsOwn) { EXPECT_DOUBLE_EQ(Millis({9, 1}, 4), 180); }

TEST(PackingBoundTest, NoMoreThanWhatReplicasTake) {
  // 1,200 ms on one device, half as much and 1,004 ms of sums and update on two.
  EXPECT_NEAR(Millis({60, 60, 60}, 2), 600 + 1004, 0.01);
  EXPECT_NEAR(Millis({60, 60, 60}, 2, true), 1000, 0.01);  // Sums overlap.
}

TEST(PackingBoundTest, NothingWhereMoreIsKnown) {
  EXPECT_EQ(Millis({5, 6, 7}, 2, false, 220), 0);
  EXPECT_EQ(Millis({5, 6, 7}, 2, false, 5000), 0);
}

}  // namespace
}  // namespace stagewright
