#include "planner_service/planners/pipedream/pipedream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "planner_service/evaluator/evaluator.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

struct Case {
  Case(Graph the_graph, Cluster the_cluster, int64_t mini_batch)
      : graph(std::move(the_graph)),
        cluster(std::move(the_cluster)),
        costs(MakeAnalyticCostModel(graph)),
        operators(*OneOperatorPerNode(graph)),
        problem{&graph, &operators, &cluster, costs.get(), mini_batch, Optimizer::kSgd} {}
  Case(const Case&) = delete;

  Outcome Solve(const PlanOptions& options = {}) {
    SearchContext context;
    return *MakePipeDreamPlanner()->Solve(problem, options, context);
  }
  Nanos TimeOf(const Strategy& strategy) const {
    EvaluateOptions options;
    options.optimizer = problem.optimizer;
    return Evaluate(graph, cluster, *costs, strategy, options)->iteration_time;
  }

  Graph graph;
  Cluster cluster;
  std::unique_ptr<CostModel> costs;
  OperatorGraph operators;
  Problem problem;
};

// Eight layers of equal work, the last with nearly all weights: like VGG16.
Graph HeavyTail() {
  std::vector<testing::Work> layers(8, {kMillisecond, 2 * kMillisecond, 64 * kKiB, kKiB, {}});
  for (int32_t v = 1; v < 8; ++v) layers[v].after = {v - 1};
  layers[7].parameter_bytes = 256 * kMiB;
  return testing::ProfiledGraph(layers);
}

TEST(PipeDreamTest, WeightsStayOnOneDevice) {
  Case heavy(HeavyTail(), testing::FlatCluster(8, 16 * kGiB, 0, 1e9), 64);
  const Outcome outcome = heavy.Solve();
  ASSERT_TRUE(outcome.strategy) << outcome.reason;
  EXPECT_EQ(outcome.termination, Termination::kFeasible);
  const auto& stages = outcome.strategy->stages;
  EXPECT_GE(stages.size(), 2u);
  EXPECT_EQ(stages.back().devices.size(), 1u);
  EXPECT_FALSE(outcome.strategy->asynchronous);
  // Far better than data parallelism, which sums 256 MiB of gradients.
  EXPECT_LT(heavy.TimeOf(*outcome.strategy), 300 * kMillisecond);
}

TEST(PipeDreamTest, ForbiddenReplicasMakeAStraightPipeline) {
  Case heavy(HeavyTail(), testing::FlatCluster(4), 32);
  PlanOptions options;
  options.allow_replicas = false;
  options.num_stages = 4;
  const Outcome outcome = heavy.Solve(options);
  ASSERT_TRUE(outcome.strategy) << outcome.reason;
  EXPECT_EQ(outcome.strategy->stages.size(), 4u);
  for (const Stage& stage : outcome.strategy->stages) {
    EXPECT_EQ(stage.devices.size(), 1u);
    EXPECT_EQ(stage.nodes.size(), 2u);
  }
}

TEST(PipeDreamTest, SeveralSourcesAreStagesLikeAllOthers) {
  // Four sources that a light sink joins, on four devices: a source each.
  std::vector<testing::Work> layers(5, {kMillisecond, kMillisecond, kKiB, 64 * kMiB, {}});
  layers[4] = {1000, 1000, kKiB, kKiB, {0, 1, 2, 3}};
  Case sources(testing::ProfiledGraph(layers), testing::FlatCluster(4, 16 * kGiB, 0, 1e9), 64);
  const Outcome outcome = sources.Solve();
  ASSERT_TRUE(outcome.strategy) << outcome.reason;
  EXPECT_EQ(outcome.strategy->stages.size(), 4u);
}

TEST(PipeDreamTest, AStageThatDoesNotFitIsExplained) {
  std::vector<testing::Work> layers(2, {1000, 1000, kKiB, 3 * kGiB, {}});
  layers[1].after = {0};
  Case heavy(testing::ProfiledGraph(layers), testing::FlatCluster(1, 8 * kGiB), 8);
  const Outcome outcome = heavy.Solve();
  EXPECT_EQ(outcome.termination, Termination::kInfeasible);
  EXPECT_FALSE(outcome.strategy);
  EXPECT_THAT(outcome.reason, HasSubstr("GiB"));
}

TEST(PipeDreamTest, AsynchronousStrategiesSayTheyAre) {
  Case heavy(HeavyTail(), testing::FlatCluster(8, 16 * kGiB, 0, 1e9), 64);
  PlanOptions options;
  options.asynchronous = true;
  options.num_stages = 2;
  const Outcome outcome = heavy.Solve(options);
  ASSERT_TRUE(outcome.strategy) << outcome.reason;
  EXPECT_TRUE(outcome.strategy->asynchronous);
  for (const Stage& stage : outcome.strategy->stages) {
    EXPECT_EQ(stage.schedule.in_flight % stage.micro_batch, 0);
  }
  EXPECT_GE(outcome.strategy->stages[0].schedule.in_flight,
            2 * outcome.strategy->stages[0].micro_batch);
}

// The weights are in the last layer, which has one micro-batch in flight: a version for itself, but
// with vertical sync as many as the first stage has micro-batches in flight.
TEST(PipeDreamTest, VerticalSyncNeedsMemoryForAsManyVersionsInAllStages) {
  PlanOptions options;
  options.asynchronous = true;
  options.allow_replicas = false;
  options.num_stages = 8;
  options.micro_batch = 4;
  // Weights and gradients take 512 MiB.
  for (const bool roomy : {true, false}) {
    Case heavy(HeavyTail(), testing::FlatCluster(8, roomy ? 4 * kGiB : kGiB, 0, 1e9), 64);
    options.vertical_sync = false;
    EXPECT_TRUE(heavy.Solve(options).strategy.has_value());
    options.vertical_sync = true;
    const Outcome outcome = heavy.Solve(options);
    if (outcome.strategy.has_value()) {
      EXPECT_TRUE(outcome.strategy->vertical_sync);
      EXPECT_GT(heavy.TimeOf(*outcome.strategy), 0);
    }
    EXPECT_EQ(outcome.strategy.has_value(), roomy) << outcome.reason;
  }
}

// What the search finds with each stage's own versions does not fit, and the first stage's
// activations leave it no room with less memory: it must count more versions.
TEST(PipeDreamTest, VerticalSyncFindsWhatFits) {
  std::vector<testing::Work> layers(8, {kMillisecond, 2 * kMillisecond, 64 * kKiB, kKiB, {}});
  for (int32_t v = 1; v < 8; ++v) layers[v].after = {v - 1};
  layers[0].activation_bytes = 35 * kMiB;
  layers[6].parameter_bytes = layers[7].parameter_bytes = 64 * kMiB;
  Case heavy(testing::ProfiledGraph(layers), testing::FlatCluster(3, 450 * kMiB, 0, 1e9), 64);
  PlanOptions options;
  options.asynchronous = options.vertical_sync = true;
  options.allow_replicas = false;
  options.num_stages = 3;
  options.micro_batch = 4;
  const Outcome outcome = heavy.Solve(options);
  ASSERT_TRUE(outcome.strategy) << outcome.reason;
  EXPECT_TRUE(outcome.strategy->vertical_sync);
  // A stage with both last layers would take 512 MiB for 3 versions and a gradient.
  EXPECT_EQ(outcome.strategy->stages.back().nodes.size(), 1u);
  options.vertical_sync = false;
  const Outcome stashed = heavy.Solve(options);
  ASSERT_TRUE(stashed.strategy) << stashed.reason;
  EXPECT_GT(stashed.strategy->stages.back().nodes.size(), 1u);
}

}  // namespace
}  // namespace stagewright
