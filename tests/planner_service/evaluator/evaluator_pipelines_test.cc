// What is known in closed form about pipelines without communication: golden facts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/cost/analytic.h"
#include "planner_service/evaluator/evaluator.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using testing::MakeStrategy;
using testing::ProfiledChain;
using testing::ProfiledGraph;

constexpr Nanos kForward = 1000;
constexpr Nanos kBackward = 2000;

Evaluation Judge(const Graph& graph, const Cluster& cluster, const Strategy& strategy) {
  const auto costs = MakeAnalyticCostModel(graph);
  auto evaluation = Evaluate(graph, cluster, *costs, strategy, {.timeline = true});
  EXPECT_TRUE(evaluation.ok()) << evaluation.status();
  return *std::move(evaluation);
}

// One stage per node and device.
Strategy OnePerNode(const Graph& graph, int64_t mini_batch, int64_t micro_batch,
                    StrategyKind kind = StrategyKind::kGraph) {
  std::vector<std::vector<int32_t>> each;
  for (int32_t v = 0; v < graph.size(); ++v) each.push_back({v});
  return MakeStrategy(graph, each, each, mini_batch, micro_batch, kind);
}

// All forwards, then all backwards.
Strategy GPipe(Strategy strategy) {
  for (Stage& stage : strategy.stages) stage.schedule.in_flight = strategy.mini_batch;
  return strategy;
}

// Until the last stage starts its first forward.
Nanos WarmUp(const Evaluation& evaluation, StageId last) {
  for (const TraceEvent& event : evaluation.simulation.timeline) {
    if (event.action.kind == ActionKind::kForward && event.action.stage == last) {
      return event.start;
    }
  }
  return -1;
}

TEST(EvaluatorPipelinesTest, ChainsTakeTheirClosedForm) {
  for (int32_t n = 1; n <= 6; ++n) {
    const Graph graph = ProfiledChain(n, {kForward, kBackward, 0, 0, {}});
    const Cluster cluster = FlatCluster(n);
    for (int64_t m = 1; m <= 12; ++m) {
      const Strategy strategy = OnePerNode(graph, 2 * m, 2);
      const Evaluation evaluation = Judge(graph, cluster, strategy);
      const Nanos slot = 2 * (kForward + kBackward);
      EXPECT_EQ(evaluation.iteration_time, (m + n - 1) * slot) << n << " stages, " << m;
      EXPECT_EQ(evaluation.depth, n);
      EXPECT_NEAR(evaluation.bubble_ratio,
                  static_cast<double>(n - 1) / static_cast<double>(m + n - 1), 1e-12);
      EXPECT_EQ(Judge(graph, cluster, GPipe(strategy)).iteration_time, (m + n - 1) * slot);
    }
  }
}

// With equal stages both have the same bubble (above); a bottleneck fills its bubble only if its
// backward passes do not wait for the last forward.
TEST(EvaluatorPipelinesTest, UnequalStagesAreNeverSlowerThanUnderGPipe) {
  const Graph graph = ProfiledGraph({{3000, 6000, 0, 0, {}},
                                     {1000, 2000, 0, 0, {0}},
                                     {2000, 4000, 0, 0, {1}},
                                     {1000, 2000, 0, 0, {2}}});
  const Cluster cluster = FlatCluster(4);
  for (int64_t m : {4, 8, 16}) {
    const Strategy strategy = OnePerNode(graph, m, 1);
    // The bottleneck is the first stage: it only waits for the last micro-batch's way back.
    EXPECT_EQ(Judge(graph, cluster, strategy).iteration_time, m * 9000 + 3000);
    // All forwards, the way through the others and back, all backwards of the bottleneck.
    EXPECT_EQ(Judge(graph, cluster, GPipe(strategy)).iteration_time,
              m * 3000 + 3 * 4000 + m * 6000);
  }
}

TEST(EvaluatorPipelinesTest, PeakMemoryDoesNotGrowWithTheMicroBatchesUnlessGPipe) {
  const Graph graph = ProfiledChain(4, {kForward, kBackward, kMiB, 4 * kMiB, {}});
  const Cluster cluster = FlatCluster(4, 16 * kGiB, 0, 1e15);
  const auto peaks = [&](int64_t m, bool gpipe) {
    const Strategy strategy = OnePerNode(graph, m, 1);
    std::vector<Bytes> result;
    const Evaluation evaluation = Judge(graph, cluster, gpipe ? GPipe(strategy) : strategy);
    for (const DeviceUse& device : evaluation.devices) result.push_back(device.peak_memory);
    return result;
  };
  const std::vector<Bytes> eight = peaks(8, false);
  EXPECT_EQ(peaks(16, false), eight);
  EXPECT_EQ(peaks(64, false), eight);
  for (size_t d = 0; d < 4; ++d) {
    EXPECT_GT(peaks(16, true)[d], peaks(8, true)[d]);
    EXPECT_GT(peaks(8, true)[d], eight[d]);
  }
  // Early stages hold more micro-batches than late ones; the first one receives no activations.
  EXPECT_GT(eight[1], eight[2]);
  EXPECT_GT(eight[2], eight[3]);
  EXPECT_GT(eight[0], eight[3]);
}

// GraphPipe figure 2: three independent stages feed a fourth.
class FigureTwoTest : public ::testing::Test {
 protected:
  Graph graph_ = ProfiledGraph({{kForward, kBackward, 0, 0, {}},
                                {kForward, kBackward, 0, 0, {}},
                                {kForward, kBackward, 0, 0, {}},
                                {kForward, kBackward, 0, 0, {0, 1, 2}}});
  Cluster cluster_ = FlatCluster(4);
};

TEST_F(FigureTwoTest, DepthAndSamplesInFlight) {
  const Evaluation graph_parallel = Judge(graph_, cluster_, OnePerNode(graph_, 8, 1));
  const Evaluation sequential =
      Judge(graph_, cluster_, OnePerNode(graph_, 8, 1, StrategyKind::kSequential));
  EXPECT_EQ(graph_parallel.depth, 2);
  EXPECT_EQ(sequential.depth, 4);
  EXPECT_EQ(graph_parallel.stages[0].in_flight, 2);
  EXPECT_EQ(sequential.stages[0].in_flight, 4);
  EXPECT_EQ(graph_parallel.stages[3].in_flight, 1);
}

TEST_F(FigureTwoTest, GraphPipelinesWarmUpSooner) {
  for (int64_t m : {1, 4, 8, 32}) {
    const Evaluation graph_parallel = Judge(graph_, cluster_, OnePerNode(graph_, m, 1));
    const Evaluation sequential =
        Judge(graph_, cluster_, OnePerNode(graph_, m, 1, StrategyKind::kSequential));
    EXPECT_EQ(WarmUp(graph_parallel, StageId(3)), kForward);
    EXPECT_EQ(WarmUp(sequential, StageId(3)), 3 * kForward);
    EXPECT_EQ(graph_parallel.iteration_time, (m + 1) * (kForward + kBackward));
    EXPECT_EQ(sequential.iteration_time, (m + 3) * (kForward + kBackward));
  }
}

// Halving the warm-up by depth is worth most when there are few micro-batches.
TEST_F(FigureTwoTest, BubblesFollowFromTheDepth) {
  const Evaluation graph_parallel = Judge(graph_, cluster_, OnePerNode(graph_, 4, 1));
  const Evaluation sequential =
      Judge(graph_, cluster_, OnePerNode(graph_, 4, 1, StrategyKind::kSequential));
  EXPECT_NEAR(graph_parallel.bubble_ratio, 1.0 / 5, 1e-12);
  EXPECT_NEAR(sequential.bubble_ratio, 3.0 / 7, 1e-12);
}

}  // namespace
}  // namespace stagewright
