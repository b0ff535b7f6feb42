#include "planner_service/planners/baselines/gpipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/planners/baselines/baselines.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"

namespace stagewright {
namespace {

using ::testing::AllOf;
using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::ProfiledChain;
using testing::ProfiledGraph;
using testing::Rng;
using testing::Uniform;
using testing::Work;

class GPipeTest : public ::testing::Test {
 protected:
  Outcome Solve(const Graph& graph, const Cluster& cluster, int64_t mini_batch) {
    const OperatorGraph operators = OneOperatorPerNode(graph).value();
    const auto costs = MakeAnalyticCostModel(graph);
    SearchContext context;
    const auto outcome = MakeGPipePlanner()->Solve(
        {&graph, &operators, &cluster, costs.get(), mini_batch, Optimizer::kAdam}, options_,
        context);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return *outcome;
  }
  PlanOptions options_;
};

// The least possible maximum of `parts` ranges, by the recurrence over all cuts.
Nanos BestBalance(const std::vector<Nanos>& work, int32_t parts) {
  const auto n = static_cast<int32_t>(work.size());
  std::vector<std::vector<Nanos>> best(
      parts + 1, std::vector<Nanos>(n + 1, std::numeric_limits<Nanos>::max()));
  best[0][0] = 0;
  for (int32_t k = 1; k <= parts; ++k) {
    for (int32_t end = k; end <= n; ++end) {
      Nanos sum = 0;
      for (int32_t begin = end - 1; begin >= k - 1; --begin) {
        sum += work[begin];
        best[k][end] = std::min(best[k][end], std::max(sum, best[k - 1][begin]));
      }
    }
  }
  return best[parts][n];
}

TEST_F(GPipeTest, StagesAreBalancedAsWellAsCanBe) {
  Rng random(5);
  for (int round = 0; round < 60; ++round) {
    std::vector<Work> nodes(Uniform(random, 2, 30));
    std::vector<Nanos> work;
    for (size_t v = 0; v < nodes.size(); ++v) {
      nodes[v].forward = Nanos(Uniform(random, 0, 9) * 1000);
      nodes[v].backward = Nanos(Uniform(random, 0, 9) * 1000);
      if (v > 0) nodes[v].after = {static_cast<int32_t>(v) - 1};
      work.push_back(nodes[v].forward + nodes[v].backward);
    }
    const int32_t devices = static_cast<int32_t>(Uniform(random, 1, 8));
    const Outcome outcome = Solve(ProfiledGraph(nodes), FlatCluster(devices), 1);
    ASSERT_TRUE(outcome.strategy);
    const auto stages = static_cast<int32_t>(outcome.strategy->stages.size());
    EXPECT_EQ(stages, std::min<int32_t>(devices, static_cast<int32_t>(nodes.size())));
    Nanos longest = 0;
    for (const Stage& stage : outcome.strategy->stages) {
      Nanos sum = 0;
      for (NodeId node : stage.nodes) sum += work[node.index()];
      longest = std::max(longest, sum);
    }
    EXPECT_EQ(longest, BestBalance(work, stages));
  }
}

TEST_F(GPipeTest, AllForwardPassesComeFirst) {
  const Outcome outcome = Solve(ProfiledChain(8, {1000, 2000, 0, 0, {}}), FlatCluster(4), 16);
  ASSERT_TRUE(outcome.strategy);
  EXPECT_EQ(outcome.termination, Termination::kFeasible);
  EXPECT_EQ(outcome.strategy->kind, StrategyKind::kSequential);
  ASSERT_EQ(outcome.strategy->stages.size(), 4u);
  for (const Stage& stage : outcome.strategy->stages) {
    EXPECT_EQ(stage.schedule.in_flight, 16);
    EXPECT_EQ(stage.micro_batch, 1);  // Nothing speaks against the most micro-batches.
    EXPECT_FALSE(stage.recompute);
  }
}

TEST_F(GPipeTest, RecomputesOnlyWhereMemoryAsksForIt) {
  // 16 samples of 1 MiB for each of two operators do not fit in 20 MiB; their inputs alone do.
  const Graph graph = ProfiledChain(4, {1000, 2000, kMiB, 0, {}});
  options_.micro_batch = 1;
  options_.num_stages = 2;
  const Outcome tight = Solve(graph, FlatCluster(2, 25 * kMiB), 16);
  ASSERT_TRUE(tight.strategy) << tight.reason;
  EXPECT_TRUE(tight.strategy->stages[0].recompute);
  options_.recompute = RecomputePolicy::kNever;
  const Outcome never = Solve(graph, FlatCluster(2, 25 * kMiB), 16);
  EXPECT_EQ(never.termination, Termination::kLimit);
  EXPECT_THAT(never.reason, AllOf(HasSubstr("found no plan"), HasSubstr("too much")));
  options_.recompute = RecomputePolicy::kAlways;
  EXPECT_TRUE(Solve(graph, FlatCluster(2), 16).strategy->stages[1].recompute);
}

TEST_F(GPipeTest, KeepsTheOptions) {
  const Graph graph = ProfiledChain(8, {1000, 2000, 0, 0, {}});
  options_.num_stages = 3;
  EXPECT_EQ(Solve(graph, FlatCluster(4), 8).strategy->stages.size(), 3u);
  options_.num_stages = 5;
  EXPECT_THAT(Solve(graph, FlatCluster(4), 8).reason, HasSubstr("num_stages is 5, but 4 devices"));
  options_.num_stages = 0;
  options_.max_stages = 2;
  options_.micro_batch = 4;
  const Outcome outcome = Solve(graph, FlatCluster(4), 8);
  EXPECT_EQ(outcome.strategy->stages.size(), 2u);
  EXPECT_EQ(outcome.strategy->stages[0].micro_batch, 4);
}

// Behind slow links, two devices take longer than one; the answer is never slower for having more.
TEST_F(GPipeTest, MoreDevicesAreNotUsedWhereTheyDoNotPay) {
  const Graph graph = ProfiledChain(6, {kMicrosecond, 2 * kMicrosecond, kMiB, kKiB, {}});
  const Outcome one = Solve(graph, FlatCluster(1), 4);
  const Outcome several = Solve(graph, FlatCluster(3, 16 * kGiB, kMillisecond, 1e8), 4);
  ASSERT_TRUE(one.strategy && several.strategy);
  EXPECT_EQ(several.strategy->stages.size(), 1u);
}

}  // namespace
}  // namespace stagewright
