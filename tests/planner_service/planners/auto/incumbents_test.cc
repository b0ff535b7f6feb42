#include "planner_service/planners/auto/incumbents.h"

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

class IncumbentsTest : public ::testing::Test {
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

TEST_F(IncumbentsTest, IdleRecomputationIsDroppedUnlessItIsAskedFor) {
  const Cluster cluster = FlatCluster(2);
  const Problem problem = On(cluster);
  PlanOptions options;
  Incumbents incumbents(problem, options, context_);
  ASSERT_TRUE(incumbents.Consider(Recomputing())->time.has_value());
  const Nanos before = incumbents.best_time();
  ASSERT_TRUE(incumbents.DropIdleRecomputation().ok());
  EXPECT_FALSE(incumbents.best()->stages[1].recompute);
  EXPECT_LE(incumbents.best_time(), before);

  options.recompute = RecomputePolicy::kAlways;
  Incumbents always(problem, options, context_);
  ASSERT_TRUE(always.Consider(Recomputing())->time.has_value());
  ASSERT_TRUE(always.DropIdleRecomputation().ok());
  EXPECT_TRUE(always.best()->stages[1].recompute);
}

TEST_F(IncumbentsTest, RecomputationThatMemoryNeedsIsKept) {
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
  Incumbents incumbents(problem, options, context_);
  ASSERT_TRUE(incumbents.Consider(strategy)->time.has_value());
  ASSERT_TRUE(incumbents.DropIdleRecomputation().ok());
  EXPECT_TRUE(incumbents.best()->stages[0].recompute);
}

TEST_F(IncumbentsTest, AKnownTimeIsNotJudgedAgain) {
  const Cluster cluster = FlatCluster(2);
  const Problem problem = On(cluster);
  const PlanOptions options;
  Incumbents incumbents(problem, options, context_);
  ASSERT_TRUE(incumbents.Consider(Recomputing(), Verdict{Nanos(17)})->time.has_value());
  EXPECT_EQ(incumbents.judged(), 0);
  EXPECT_EQ(incumbents.best_time(), 17);
  ASSERT_TRUE(incumbents.Consider(Recomputing())->time.has_value());
  EXPECT_EQ(incumbents.judged(), 1);
  EXPECT_EQ(incumbents.best_time(), 17);
}

// The first answer is judged to its end however late it is; later ones are not.
TEST_F(IncumbentsTest, WhatIsLateOnlyCountsAsTheFirstAnswer) {
  const Cluster cluster = FlatCluster(2);
  const Problem problem = On(cluster);
  const PlanOptions options;
  SearchContext late(SearchContext::Clock::now());
  Incumbents incumbents(problem, options, late);
  ASSERT_TRUE(incumbents.Consider(Recomputing())->time.has_value());
  ASSERT_TRUE(incumbents.best().has_value());
  EXPECT_FALSE(incumbents.Consider(Recomputing())->time.has_value());
  EXPECT_EQ(incumbents.accepted().size(), 1u);
}

}  // namespace
}  // namespace stagewright
