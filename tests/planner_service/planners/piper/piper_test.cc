#include "planner_service/planners/piper/piper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/planners/piper/solve.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::ProfiledChain;
using testing::ProfiledGraph;
using testing::Work;

// A problem with what it refers to.
struct Case {
  Case(Graph the_graph, Cluster the_cluster, int64_t batch)
      : graph(std::move(the_graph)),
        cluster(std::move(the_cluster)),
        operators(OneOperatorPerNode(graph).value()),
        costs(MakeAnalyticCostModel(graph)),
        problem{&graph, &operators, &cluster, costs.get(), batch, Optimizer::kSgd} {}

  Outcome Solve(const PlanOptions& options = {}) const {
    SearchContext context;
    return MakePiperPlanner()->Solve(problem, options, context).value();
  }
  Nanos Time(const Outcome& outcome) const {
    EvaluateOptions evaluate;
    evaluate.optimizer = Optimizer::kSgd;
    return Evaluate(graph, cluster, *costs, *outcome.strategy, evaluate).value().iteration_time;
  }

  Graph graph;
  Cluster cluster;
  OperatorGraph operators;
  std::unique_ptr<CostModel> costs;
  Problem problem;
};

// Every pass costs as much as many samples of it.
class CostlyCalls : public CostModel {
 public:
  explicit CostlyCalls(const Graph& graph) : per_sample_(MakeAnalyticCostModel(graph)) {}
  OperatorTime Time(NodeId node, const DeviceKind& kind, int64_t samples) const override {
    OperatorTime time = per_sample_->Time(node, kind, samples);
    if (samples <= 0) return time;
    return time += {kCall, 2 * kCall, kCall, kCall};
  }
  Bytes SavedBytes(NodeId node, int64_t samples) const override {
    return per_sample_->SavedBytes(node, samples);
  }
  Bytes WorkspaceBytes(NodeId node, int64_t samples) const override {
    return per_sample_->WorkspaceBytes(node, samples);
  }
  std::string Description() const override { return "costly calls"; }

 private:
  static constexpr Nanos kCall = 100 * kMicrosecond;
  std::unique_ptr<CostModel> per_sample_;
};

TEST(PiperTest, LeavesNoDevicesIdleWhereSmallMicroBatchesAreDear) {
  Case c(ProfiledChain(8, {kMicrosecond, 2 * kMicrosecond, kKiB, 256 * kMiB, {}}), FlatCluster(4),
         256);
  const CostlyCalls costs(c.graph);
  c.problem.costs = &costs;
  const Outcome outcome = c.Solve();
  ASSERT_TRUE(outcome.strategy);
  EXPECT_EQ(outcome.strategy->stages.size(), 4u);
  // Two large micro-batches: fewer than on one device would be idle, more would call too often.
  EXPECT_GE(outcome.strategy->stages[0].micro_batch, 64);
}

TEST(PiperTest, BalancesAChain) {
  // Parameters too large to be replicated: a stage per device.
  const Case c(ProfiledChain(8, {kMillisecond, 2 * kMillisecond, kKiB, 256 * kMiB, {}}),
               FlatCluster(4), 64);
  const Outcome outcome = c.Solve();
  EXPECT_EQ(outcome.termination, Termination::kFeasible);
  ASSERT_TRUE(outcome.strategy);
  ASSERT_EQ(outcome.strategy->stages.size(), 4u);
  for (const Stage& stage : outcome.strategy->stages) EXPECT_EQ(stage.nodes.size(), 2u);
  // 6 ms a sample in every stage, and three to fill and drain.
  EXPECT_LT(c.Time(outcome), (64 + 3) * 6 * kMillisecond * 11 / 10);
}

TEST(PiperTest, RecomputesWhereMemoryAsksForIt) {
  // Four operators save 800 MiB a sample; two samples in flight do not fit beside 512 MiB,
  // and neither do five operators with one.
  GraphData data = ProfiledChain(8, {kMillisecond, 2 * kMillisecond, kKiB, 64 * kMiB, {}}).data();
  for (Node& node : data.nodes) node.cost->saved_bytes = 200 * kMiB;
  const Case c(Graph::Create(data).value(), FlatCluster(2, 1536 * kMiB, 0, 1e12), 8);
  const Outcome outcome = c.Solve({.micro_batch = 1, .num_stages = 2});
  ASSERT_TRUE(outcome.strategy) << outcome.reason;
  EXPECT_TRUE(outcome.strategy->stages[0].recompute || outcome.strategy->stages[1].recompute);
  const Outcome never =
      c.Solve({.micro_batch = 1, .num_stages = 2, .recompute = RecomputePolicy::kNever});
  if (never.strategy) {
    for (const Stage& stage : never.strategy->stages) EXPECT_FALSE(stage.recompute);
  } else {
    EXPECT_THAT(never.reason, HasSubstr("GiB"));
  }
  const Outcome always =
      c.Solve({.micro_batch = 1, .num_stages = 2, .recompute = RecomputePolicy::kAlways});
  ASSERT_TRUE(always.strategy) << always.reason;
  for (const Stage& stage : always.strategy->stages) EXPECT_TRUE(stage.recompute);
}

TEST(PiperTest, SaysWhereItLookedAtOrdersOnly) {
  const Case c(ProfiledGraph(std::vector<Work>(24, {kMillisecond, kMillisecond, kKiB, kKiB, {}})),
               FlatCluster(4), 16);
  const Outcome outcome = c.Solve();
  EXPECT_EQ(outcome.termination, Termination::kLimit);
  EXPECT_THAT(outcome.reason, HasSubstr("downsets"));
  ASSERT_TRUE(outcome.strategy);
}

TEST(PiperTest, SaysThatItLeftTensorParallelConfigurationsOut) {
  GraphData data = ProfiledChain(2, {kMillisecond, kMillisecond, kKiB, kKiB, {}}).data();
  data.nodes[0].cost->configurations = {{1, false, 2 * kMillisecond, kKiB, kKiB, kKiB, {}, {}},
                                        {2, false, kMillisecond, kKiB, kKiB, kKiB, {}, {}}};
  const Case c(Graph::Create(data).value(), FlatCluster(2), 8);
  const Outcome outcome = c.Solve();
  ASSERT_TRUE(outcome.strategy);
  EXPECT_THAT(outcome.reason, HasSubstr("tensor-parallel"));
}

TEST(PiperTest, MicroBatchesPerStageGiveReplicasWholeOnes) {
  // A stage with small parameters and much work beside one with large parameters.
  std::vector<Work> nodes(2, {3 * kMillisecond, 6 * kMillisecond, kKiB, kKiB, {}});
  nodes[1] = {kMillisecond, 2 * kMillisecond, kKiB, kGiB, {0}};
  const Case c(ProfiledGraph(nodes), FlatCluster(4, 16 * kGiB, 0, 1e8), 24);
  const Outcome outcome = c.Solve({.per_stage_micro_batch = true});
  ASSERT_TRUE(outcome.strategy);
  ASSERT_EQ(outcome.strategy->stages.size(), 2u);
  EXPECT_EQ(outcome.strategy->stages[0].devices.size(), 3u);
}

}  // namespace
}  // namespace stagewright
