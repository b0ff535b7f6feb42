#include "planner_service/planners/auto/champions.h"

#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "planner_service/evaluator/evaluator.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using testing::ProfiledChain;

class ChampionsTest : public ::testing::Test {
 protected:
  // Two stages of two operators, the second recomputes.
  Strategy Recomputing() const {
    Strategy strategy = testing::MakeStrategy(graph_, {{0, 1}, {2, 3}}, {{0}, {1}}, 8, 2);
    strategy.stages[1].recompute = true;
    return strategy;
  }
  Problem On(const Cluster& cluster) const {
    return {&graph_, &operators_, &cluster, costs_.get(), 8, Optimizer::kSgd};
  }

  const Graph graph_ = ProfiledChain(4, {kMillisecond, 2 * kMillisecond, kMiB, kMiB, {}});
  const OperatorGraph operators_ = OneOperatorPerNode(graph_).value();
  const std::unique_ptr<CostModel> costs_ = MakeAnalyticCostModel(graph_);
  SearchContext context_;
};

TEST_F(ChampionsTest, IdleRecomputationIsDroppedUnlessItIsAskedFor) {
  const Cluster cluster = FlatCluster(2);
  const Problem problem = On(cluster);
  PlanOptions options;
  Champions champions(problem, options, context_);
  ASSERT_TRUE(*champions.Offer(Recomputing()));
  const Nanos before = champions.best_time();
  ASSERT_TRUE(champions.DropIdleRecomputation().ok());
  EXPECT_FALSE(champions.best()->stages[1].recompute);
  EXPECT_LE(champions.best_time(), before);

  options.recompute = RecomputePolicy::kAlways;
  Champions always(problem, options, context_);
  ASSERT_TRUE(*always.Offer(Recomputing()));
  ASSERT_TRUE(always.DropIdleRecomputation().ok());
  EXPECT_TRUE(always.best()->stages[1].recompute);
}

TEST_F(ChampionsTest, RecomputationThatMemoryNeedsIsKept) {
  Strategy strategy = Recomputing();
  for (Stage& stage : strategy.stages) stage.recompute = true;
  const auto peak = [&](const Strategy& s) {
    const Cluster plenty = FlatCluster(2);
    const auto evaluation = Evaluate(graph_, plenty, *costs_, s, {.optimizer = Optimizer::kSgd});
    EXPECT_TRUE(evaluation.ok()) << evaluation.status();
    Bytes most = 0;
    for (const DeviceUse& use : evaluation->devices) most = std::max(most, use.peak_memory);
    return most;
  };
  const Bytes enough = peak(strategy);
  Strategy kept = strategy;
  kept.stages[0].recompute = false;
  ASSERT_GT(peak(kept), enough);  // The first stage has two micro-batches in flight.
  const Cluster tight = FlatCluster(2, enough);
  const Problem problem = On(tight);
  const PlanOptions options;
  Champions champions(problem, options, context_);
  ASSERT_TRUE(*champions.Offer(strategy));
  ASSERT_TRUE(champions.DropIdleRecomputation().ok());
  EXPECT_TRUE(champions.best()->stages[0].recompute);
}

TEST_F(ChampionsTest, AKnownTimeIsNotJudgedAgain) {
  const Cluster cluster = FlatCluster(2);
  const Problem problem = On(cluster);
  const PlanOptions options;
  Champions champions(problem, options, context_);
  ASSERT_TRUE(*champions.Offer(Recomputing(), Nanos{17}));
  EXPECT_EQ(champions.judged(), 0);
  EXPECT_EQ(champions.best_time(), 17);
  ASSERT_TRUE(*champions.Offer(Recomputing()));
  EXPECT_EQ(champions.judged(), 1);
  EXPECT_EQ(champions.best_time(), 17);
}

// The first answer is judged to its end however late it is; later ones are not.
TEST_F(ChampionsTest, WhatIsLateOnlyCountsAsTheFirstAnswer) {
  const Cluster cluster = FlatCluster(2);
  const Problem problem = On(cluster);
  const PlanOptions options;
  SearchContext late(SearchContext::Clock::now());
  Champions champions(problem, options, late);
  ASSERT_TRUE(*champions.Offer(Recomputing()));
  ASSERT_TRUE(champions.best().has_value());
  EXPECT_FALSE(*champions.Offer(Recomputing()));
  EXPECT_EQ(champions.accepted().size(), 1u);
}

}  // namespace
}  // namespace stagewright
