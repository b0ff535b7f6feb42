#include "planner_service/evaluator/bounds/ways.h"

#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::FlatCluster;

struct Way {
  double head = 0;
  double tail = 0;
};

// The ways of the last of these nodes, in us. Links take 10 us and 1 us a KB.
Way WaysOf(const std::vector<testing::Work>& nodes, int32_t devices) {
  const Graph graph = testing::ProfiledGraph(nodes);
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const Cluster cluster = FlatCluster(devices, 16 * kGiB, 10 * kMicrosecond, 1e9);
  const auto costs = MakeAnalyticCostModel(graph);
  const BoundProblem problem =
      MakeBoundProblem(graph, operators, cluster, *costs, 1, Optimizer::kSgd);
  const size_t last = nodes.size() - 1;
  return {problem.head[last] * 1e-3, problem.tail[last] * 1e-3};
}

testing::Work Us(int64_t forward, int64_t backward, Bytes bytes, std::vector<int32_t> after) {
  return {forward * kMicrosecond, backward * kMicrosecond, bytes, 0, std::move(after)};
}

TEST(WaysTest, OneProducerRunsOnTheSameDevice) {
  const Way way = WaysOf({Us(30, 60, 1'000'000, {}), Us(1, 1, 0, {0})}, 2);
  EXPECT_DOUBLE_EQ(way.head, 30);
  EXPECT_DOUBLE_EQ(way.tail, 60);
}

TEST(WaysTest, TwoRunInTurnOrOneSends) {
  // In turn 50 us, while the shorter one takes 20 + 10 + 5 us to run elsewhere and send.
  const Way near = WaysOf({Us(30, 60, 5'000, {}), Us(20, 40, 5'000, {}), Us(1, 1, 0, {0, 1})}, 2);
  EXPECT_DOUBLE_EQ(near.head, 35);
  EXPECT_DOUBLE_EQ(near.tail, 60);
  // 400 us to send: in turn, also on the way back.
  const Way far =
      WaysOf({Us(30, 60, 400'000, {}), Us(20, 40, 400'000, {}), Us(1, 1, 0, {0, 1})}, 2);
  EXPECT_DOUBLE_EQ(far.head, 50);
  EXPECT_DOUBLE_EQ(far.tail, 100);
}

TEST(WaysTest, OneDeviceRunsAllInTurn) {
  const Way way =
      WaysOf({Us(30, 60, 0, {}), Us(20, 40, 0, {}), Us(7, 9, 0, {}), Us(1, 1, 0, {0, 1, 2})}, 1);
  EXPECT_DOUBLE_EQ(way.head, 57);
  EXPECT_DOUBLE_EQ(way.tail, 109);
}

TEST(WaysTest, ProducersWaitForTheirOwn) {
  // The second can only start at 100 us; the first has run by then.
  const std::vector<testing::Work> nodes = {Us(100, 1, 900'000, {}), Us(30, 60, 900'000, {}),
                                            Us(20, 40, 900'000, {0}), Us(1, 1, 0, {1, 2})};
  const Way way = WaysOf(nodes, 4);
  EXPECT_DOUBLE_EQ(way.head, 120);
  EXPECT_DOUBLE_EQ(way.tail, 100);  // 40 and 60 in turn; the 1 us of the first goes beside them.
}

}  // namespace
}  // namespace stagewright
