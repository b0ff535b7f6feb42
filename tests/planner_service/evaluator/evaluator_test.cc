#include "planner_service/evaluator/evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/collectives.h"
#include "common/cost/parameters.h"
#include "common/strategy/in_flight.h"
#include "tests/support/clusters.h"
#include "tests/support/graph_builder.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::MakeStrategy;
using testing::ProfiledChain;
using testing::Rng;
using testing::Uniform;

absl::StatusOr<Evaluation> Judge(const Graph& graph, const Cluster& cluster,
                                 const Strategy& strategy, const EvaluateOptions& options = {}) {
  const auto costs = MakeAnalyticCostModel(graph);
  return Evaluate(graph, cluster, *costs, strategy, options);
}

TEST(EvaluatorTest, ReportsEveryStage) {
  const Graph graph = ProfiledChain(4, {1000, 2000, kKiB, 1000, {}});
  const Cluster cluster = FlatCluster(3, kGiB, 10, 1e9);
  Strategy strategy = MakeStrategy(graph, {{0, 1}, {2, 3}}, {{0, 1}, {2}}, 16, 4);
  strategy.bucket_bytes = kMiB;  // One sum a stage.
  const auto evaluation = Judge(graph, cluster, strategy);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  ASSERT_EQ(evaluation->stages.size(), 2u);
  const StageReport& replicated = evaluation->stages[0];
  // Each of two replicas runs 2 of 4 samples through two nodes.
  EXPECT_EQ(replicated.compute_per_micro_batch, 2 * 2 * 3000);
  const Nanos ring = RingAllReduceTime(cluster, {DeviceId(0), DeviceId(1)}, 2000);
  EXPECT_DOUBLE_EQ(replicated.seconds_per_sample, 2 * 2 * 3000 / 4.0 * 1e-9 + ToSeconds(ring) / 16);
  EXPECT_EQ(evaluation->stages[1].compute_per_micro_batch, 4 * 2 * 3000);
  EXPECT_DOUBLE_EQ(evaluation->stages[1].seconds_per_sample, 2 * 3000e-9);
  EXPECT_EQ(replicated.in_flight, 8);
  EXPECT_EQ(evaluation->stages[1].in_flight, 4);
  EXPECT_EQ(evaluation->depth, 2);
  EXPECT_DOUBLE_EQ(evaluation->samples_per_second, 16 / ToSeconds(evaluation->iteration_time));
  ASSERT_EQ(evaluation->devices.size(), 3u);
  // Stage 1 holds two parameters of 1000 bytes four times (Adam).
  EXPECT_GE(evaluation->stages[1].peak_memory, 8000);
  EXPECT_EQ(evaluation->stages[1].peak_memory, evaluation->devices[2].peak_memory);
  EXPECT_TRUE(evaluation->simulation.timeline.empty());
  EXPECT_FALSE(Judge(graph, cluster, strategy, {.timeline = true})->simulation.timeline.empty());
}

TEST(EvaluatorTest, StopsWhenAskedTo) {
  const Graph graph = ProfiledChain(2, {1000, 2000, kKiB, 1000, {}});
  const Strategy strategy = MakeStrategy(graph, {{0}, {1}}, {{0}, {1}}, 4096, 1);
  const auto evaluate = [&](int until, int* asked) {
    EvaluateOptions options;
    options.stop = [=] { return ++*asked > until; };
    return Judge(graph, FlatCluster(2), strategy, options).status();
  };
  int most = 0;
  ASSERT_TRUE(evaluate(1000, &most).ok());
  EXPECT_GE(most, 8);  // Between the steps of an evaluation, and within the simulation.
  for (int until = 0; until < most; ++until) {
    int asked = 0;
    EXPECT_TRUE(absl::IsCancelled(evaluate(until, &asked)));
    EXPECT_EQ(asked, until + 1);
  }
}

TEST(EvaluatorTest, TheOptimizerDecidesResidentMemory) {
  const Graph graph = ProfiledChain(1, {1000, 2000, 0, 1000, {}});
  const Cluster cluster = FlatCluster(1, kGiB);
  const Strategy strategy = MakeStrategy(graph, {{0}}, {{0}}, 1, 1);
  const auto peak = [&](Optimizer optimizer) {
    return Judge(graph, cluster, strategy, {.optimizer = optimizer})->devices[0].peak_memory;
  };
  EXPECT_EQ(peak(Optimizer::kAdam) - peak(Optimizer::kSgdMomentum), 1000);
  EXPECT_EQ(peak(Optimizer::kSgdMomentum) - peak(Optimizer::kSgd), 1000);
}

TEST(EvaluatorTest, BrokenConditionsAreNamed) {
  const Graph graph = ProfiledChain(3, {1, 1, 0, 0, {}});
  const Cluster cluster = FlatCluster(3);
  const Strategy good = MakeStrategy(graph, {{0}, {1}, {2}}, {{0}, {1}, {2}}, 8, 2);
  ASSERT_TRUE(Judge(graph, cluster, good).ok());
  const auto message = [&](const Strategy& strategy) {
    const absl::Status status = Judge(graph, cluster, strategy).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  };
  Strategy bad = good;
  bad.stages[2].nodes.clear();
  EXPECT_THAT(message(bad), HasSubstr("C1"));
  bad = good;
  bad.edges.pop_back();
  EXPECT_THAT(message(bad), HasSubstr("C2"));
  bad = good;
  bad.stages[1].devices.clear();
  EXPECT_THAT(message(bad), HasSubstr("C3"));
  bad = good;
  bad.stages[1].micro_batch = 3;
  EXPECT_THAT(message(bad), HasSubstr("C4"));
}

TEST(EvaluatorTest, TensorsThatCannotBeSplitAreTheStrategysFault) {
  testing::GraphBuilder builder("whole");
  const Argument x = builder.Feature("x", {4});
  TensorMeta meta;
  meta.shape = {{0, 4}};
  const Argument sum = builder.AddWith("aten.sum.dim_IntList", {builder.Linear(x, 4, 4)}, {meta});
  builder.Loss(builder.Add("aten.add.Tensor", {builder.Linear(x, 4, 4), sum}, {4}), {4});
  const Graph graph = builder.Build();
  const Cluster cluster = FlatCluster(2);
  std::vector<std::vector<int32_t>> nodes(2);
  const int32_t cut = testing::NodeOf(sum).value();
  for (int32_t v : graph.dag().order()) nodes[v > cut].push_back(v);
  Strategy strategy = MakeStrategy(graph, nodes, {{0}, {1}}, 8, 2);
  ASSERT_TRUE(Judge(graph, cluster, strategy).ok());
  strategy.stages[1].micro_batch = 4;
  AssignInFlight(strategy);
  const absl::Status status = Judge(graph, cluster, strategy).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be split between stages 0 and 1"));
}

// Random strategies of all kinds: the judge accepts them or says what is wrong, never with a
// deadlock (they all satisfy the conditions), and what it accepts is consistent.
TEST(EvaluatorTest, RandomStrategiesAreJudged) {
  Rng random(21);
  int accepted = 0;
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    const auto size = static_cast<int32_t>(Uniform(random, 1, 24));
    const Graph graph = Uniform(random, 0, 1) == 0 ? testing::RandomProfile(random, size)
                                                   : testing::RandomNetwork(random, size);
    const Cluster cluster = testing::RandomCluster(random, 8);
    const OperatorGraph operators = OneOperatorPerNode(graph).value();
    const Strategy strategy =
        testing::RandomStrategy(random, graph, operators, cluster, Uniform(random, 1, 32));
    const auto evaluation = Judge(graph, cluster, strategy);
    if (!evaluation.ok()) {
      // Tensors without a batch dimension may have to be split, which is refused.
      if (absl::IsFailedPrecondition(evaluation.status())) {
        ASSERT_THAT(std::string(evaluation.status().message()), HasSubstr("cannot be split"));
      }
      continue;
    }
    ++accepted;
    EXPECT_GE(evaluation->bubble_ratio, -1e-9);
    EXPECT_LE(evaluation->bubble_ratio, 1);
    for (const DeviceUse& device : evaluation->devices) {
      EXPECT_LE(device.peak_memory, cluster.device(device.device).memory);
    }
    for (size_t s = 0; s < strategy.stages.size(); ++s) {
      EXPECT_LE(evaluation->stages[s].in_flight, strategy.mini_batch);
      EXPECT_LE(evaluation->stages[s].in_flight,
                std::max(strategy.stages[s].schedule.in_flight,
                         strategy.stages[s].schedule.k * strategy.stages[s].micro_batch));
    }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace stagewright
