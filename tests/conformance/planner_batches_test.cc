// What may run together: every planner keeps nodes that need the whole mini-batch on it, and shares
// of micro-batches within the bounds of the graph.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/planner_suite.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::ProfiledGraph;
using testing::Work;

constexpr Work kWork = {kMillisecond, 2 * kMillisecond, kKiB, kKiB, {}};
constexpr int32_t kTower = 3;

// Two towers of three operators each and a join that depends on which samples it sees.
Graph TwoTowers() {
  std::vector<Work> nodes(2 * kTower + 1, kWork);
  for (int32_t v = 0; v < 2 * kTower; ++v) {
    if (v % kTower > 0) nodes[v].after = {v - 1};
  }
  nodes.back() = {kMillisecond / 100, kMillisecond / 50, kKiB, 0, {kTower - 1, 2 * kTower - 1}};
  GraphData data = ProfiledGraph(nodes).data();
  data.nodes.back().batch_dependent = true;
  return Graph::Create(std::move(data)).value();
}

Graph Bounded(SampleBounds bounds) {
  std::vector<Work> nodes(6, kWork);
  for (int32_t v = 1; v < 6; ++v) nodes[v].after = {v - 1};
  GraphData data = ProfiledGraph(nodes).data();
  data.samples = bounds;
  return Graph::Create(std::move(data)).value();
}

class PlannerBatchesTest : public PlannerSuite {
 protected:
  static bool IsAuto() { return std::string(GetParam().name) == kDefaultPlanner; }
  // Has no plan where one device must do it all, and says so.
  static bool OnlyReplicas() { return !GetParam().make()->abilities().without_replicas; }
};

TEST_P(PlannerBatchesTest, JoinsThatNeedTheWholeMiniBatchHaveIt) {
  const Graph graph = TwoTowers();
  const Cluster cluster = FlatCluster(4);
  for (auto statistics : {BatchStatistics::kWhole, BatchStatistics::kMicro}) {
    PlanRequest request = Request(graph, cluster, 16);
    request.options.batch_statistics = statistics;
    const PlanResponse response = Solve(request);
    if (OnlyReplicas()) {
      EXPECT_FALSE(response.best);
      EXPECT_THAT(response.reason, HasSubstr("node \"n6\" needs the whole mini-batch of 16"));
      continue;
    }
    ASSERT_TRUE(response.best) << response.reason;
    EXPECT_EQ(response.best->plan.strategy.batch_statistics, statistics);
    for (const Stage& stage : response.best->plan.strategy.stages) {
      if (stage.nodes.back() != NodeId(2 * kTower)) continue;
      EXPECT_EQ(stage.micro_batch, 16);
      EXPECT_EQ(stage.devices.size(), 1u);
    }
    // Six operators of 3 ms a sample: on four devices the default planner wastes little.
    if (IsAuto()) {
      EXPECT_LT(response.best->evaluation.iteration_time, 16 * 6 * kMillisecond);
    }
  }
}

TEST_P(PlannerBatchesTest, OtherStagesKeepTheMicroBatchAskedFor) {
  const Graph graph = TwoTowers();
  const Cluster cluster = FlatCluster(4);
  PlanRequest request = Request(graph, cluster, 16);
  request.options.micro_batch = 4;
  const PlanResponse response = Solve(request);
  if (!IsAuto()) {
    EXPECT_FALSE(response.best);
    EXPECT_THAT(response.reason, HasSubstr("micro_batch of 4 is asked for"));
    return;
  }
  ASSERT_TRUE(response.best) << response.reason;
  EXPECT_GT(response.best->plan.strategy.stages.size(), 1u);
  EXPECT_EQ(response.best->plan.strategy.stages.front().micro_batch, 4);
  EXPECT_EQ(response.best->plan.strategy.stages.back().micro_batch, 16);
}

TEST_P(PlannerBatchesTest, OneDeviceRunsTheWholeMiniBatch) {
  const Graph graph = TwoTowers();
  const PlanResponse response = MustPlan(graph, FlatCluster(1), 16);
  ASSERT_TRUE(response.best);
  EXPECT_EQ(response.best->plan.strategy.stages.front().micro_batch, 16);
}

TEST_P(PlannerBatchesTest, SharesAreWithinTheBounds) {
  struct Case {
    SampleBounds bounds;
    int64_t mini_batch;
    int32_t devices;
  };
  for (const Case& c : {Case{{2, 5}, 16, 4}, Case{{8, 8}, 64, 4}, Case{{2, 3}, 20, 3},
                        Case{{3, SampleBounds{}.most}, 12, 4}, Case{{1, 31}, 64, 2}}) {
    SCOPED_TRACE(absl::StrCat(c.bounds.least, " to ", c.bounds.most, " of ", c.mini_batch));
    const Graph graph = Bounded(c.bounds);
    const Cluster cluster = FlatCluster(c.devices);
    // CheckResponse() judges it again.
    const PlanResponse response = Solve(Request(graph, cluster, c.mini_batch));
    if (OnlyReplicas() && c.bounds == SampleBounds{2, 3}) {
      EXPECT_THAT(response.reason, HasSubstr("gives each of 3 replicas 2 to 3 samples"));
      continue;
    }
    EXPECT_TRUE(response.best) << response.reason;
  }
}

TEST_P(PlannerBatchesTest, NoMicroBatchWithinTheBounds) {
  const Graph graph = Bounded({3, 3});
  const Cluster cluster = FlatCluster(2);
  PlanRequest request = Request(graph, cluster, 16);
  EXPECT_THAT(Solve(request).reason,
              HasSubstr("the model takes from 3 to 3 samples in one forward pass, and no "
                        "micro-batch that divides a mini-batch of 16 samples does"));
  const Graph small = Bounded({1, 4});
  request = Request(small, cluster, 16);
  request.options.micro_batch = 16;
  EXPECT_THAT(Solve(request).reason, HasSubstr("micro-batches of 16 samples do not"));
}

INSTANTIATE_TEST_SUITE_P(All, PlannerBatchesTest, ::testing::ValuesIn(PlannersUnderTest()),
                         SuiteName);

}  // namespace
}  // namespace stagewright
