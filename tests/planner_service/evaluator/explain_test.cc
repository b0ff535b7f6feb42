#include "planner_service/evaluator/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/cost/analytic.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::MakeStrategy;
using ::testing::Not;
using testing::ProfiledChain;
using testing::ProfiledGraph;

Explanation Explained(const Graph& graph, const Cluster& cluster, const Strategy& strategy,
                      const ExplainOptions& options = {}) {
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const auto costs = MakeAnalyticCostModel(graph);
  const auto explanation = Explain(graph, operators, cluster, *costs, strategy, options);
  EXPECT_TRUE(explanation.ok()) << explanation.status();
  EXPECT_EQ(explanation->compute + explanation->links + explanation->memory + explanation->bubble,
            explanation->step_time);
  return *explanation;
}

std::optional<Nanos> Lever(const Explanation& explanation, const std::string& change) {
  for (const WhatIf& lever : explanation.levers) {
    if (lever.change.find(change) != std::string::npos) return lever.step_time;
  }
  ADD_FAILURE() << "no lever " << change;
  return std::nullopt;
}

TEST(ExplainTest, OneDeviceOnlyComputes) {
  const Graph graph = ProfiledChain(3, {1000, 2000, 0, 0, {}});
  const Explanation explanation =
      Explained(graph, FlatCluster(1), MakeStrategy(graph, {{0, 1, 2}}, {{0}}, 4, 2));
  EXPECT_EQ(explanation.step_time, 4 * 9000);
  EXPECT_EQ(explanation.compute, 4 * 9000);
  EXPECT_EQ(explanation.binding, Binding::kCompute);
  EXPECT_EQ(explanation.bottleneck, StageId(0));
  EXPECT_TRUE(explanation.cuts.empty());
  EXPECT_EQ(Lever(explanation, "devices twice as fast"), 2 * 9000);
  EXPECT_EQ(Lever(explanation, "twice as many devices"), 2 * 9000);
  EXPECT_EQ(Lever(explanation, "links twice as fast"), 4 * 9000);
}

// Two stages of 2 and 4 operators with free links: giving one operator back balances them.
TEST(ExplainTest, CutsAreJudgedBySimulation) {
  const Graph graph = ProfiledChain(6, {1000, 2000, 0, 0, {}});
  const Strategy strategy = MakeStrategy(graph, {{0, 1}, {2, 3, 4, 5}}, {{0}, {1}}, 32, 1);
  const Explanation explanation = Explained(graph, FlatCluster(2), strategy);
  EXPECT_EQ(explanation.bottleneck, StageId(1));
  EXPECT_EQ(explanation.binding, Binding::kCompute);
  EXPECT_EQ(explanation.compute, 32 * 12'000);
  EXPECT_EQ(explanation.links, 0);
  EXPECT_EQ(explanation.bubble, 6000);  // Fill and drain through stage 0.
  ASSERT_EQ(explanation.cuts.size(), 1u);
  const CutReport& cut = explanation.cuts[0];
  EXPECT_EQ(cut.larger.change, "n2 to stage 0");
  EXPECT_EQ(cut.larger.step_time, 33 * 9000);
  EXPECT_EQ(cut.smaller.change, "n1 to stage 1");
  EXPECT_EQ(cut.smaller.step_time, 32 * 15'000 + 3000);
  EXPECT_THAT(ToText(explanation), HasSubstr("compute binds; the bottleneck is stage 1"));
}

// A transfer of 8 ms each way beside 3 ms of compute a stage.
TEST(ExplainTest, SlowLinksBind) {
  const Graph graph = ProfiledGraph({{kMillisecond, 2 * kMillisecond, 8'000'000, 0, {}},
                                     {kMillisecond, 2 * kMillisecond, 0, 0, {0}}});
  const Strategy strategy = MakeStrategy(graph, {{0}, {1}}, {{0}, {1}}, 4, 1);
  const Explanation explanation = Explained(graph, FlatCluster(2), strategy);
  EXPECT_EQ(explanation.binding, Binding::kLinks);
  EXPECT_EQ(explanation.levers.front().change, "links twice as fast");
  EXPECT_LT(*Lever(explanation, "links twice as fast"), explanation.step_time);
  EXPECT_EQ(Lever(explanation, "half the latency"), explanation.step_time);
}

// One micro-batch through four stages: three quarters of the time each device waits.
TEST(ExplainTest, FewMicroBatchesAreBubble) {
  const Graph graph = ProfiledChain(4, {1000, 2000, 0, 0, {}});
  const Strategy strategy = MakeStrategy(graph, {{0}, {1}, {2}, {3}}, {{0}, {1}, {2}, {3}}, 8, 8);
  const Explanation explanation = Explained(graph, FlatCluster(4), strategy);
  EXPECT_EQ(explanation.binding, Binding::kBubble);
  EXPECT_EQ(explanation.bubble, 3 * explanation.compute);
  EXPECT_LT(*Lever(explanation, "half as large"), explanation.step_time);
  EXPECT_EQ(Lever(explanation, "links twice as fast"), explanation.step_time);
}

// One sample in flight where four would fit the schedule: more memory would let them.
TEST(ExplainTest, TooLittleInFlightIsMemory) {
  const Graph graph = ProfiledChain(4, {1000, 2000, kMiB, 0, {}});
  Strategy strategy = MakeStrategy(graph, {{0}, {1}, {2}, {3}}, {{0}, {1}, {2}, {3}}, 32, 1);
  for (Stage& stage : strategy.stages) stage.schedule.in_flight = 1;
  const Cluster cluster = FlatCluster(4, 16 * kGiB, 0, 1e15);
  const Explanation explanation = Explained(graph, cluster, strategy);
  EXPECT_EQ(explanation.binding, Binding::kMemory);
  EXPECT_EQ(Lever(explanation, "twice the memory"), explanation.step_time - explanation.memory);
}

TEST(ExplainTest, RecomputationIsMemory) {
  const Graph graph = ProfiledChain(2, {1000, 0, kMiB, 0, {}});
  Strategy strategy = MakeStrategy(graph, {{0, 1}}, {{0}}, 8, 1);
  strategy.stages[0].recompute = true;
  const Explanation explanation = Explained(graph, FlatCluster(1), strategy);
  EXPECT_EQ(explanation.step_time, 8 * 4000);
  EXPECT_EQ(explanation.memory, 8 * 2000);
  EXPECT_EQ(explanation.compute, 8 * 2000);
}

TEST(ExplainTest, StopsWhenAskedTo) {
  const Graph graph = ProfiledChain(8, {1000, 2000, 0, 0, {}});
  const Strategy strategy =
      MakeStrategy(graph, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, {{0}, {1}, {2}, {3}}, 8, 1);
  ExplainOptions options;
  options.expired = [] { return true; };
  const Explanation explanation = Explained(graph, FlatCluster(4), strategy, options);
  EXPECT_TRUE(explanation.cuts.empty());
  EXPECT_EQ(explanation.cuts_left_out, 3);
  options.expired = nullptr;
  options.most_trials = 2;
  const Explanation some = Explained(graph, FlatCluster(4), strategy, options);
  EXPECT_EQ(some.cuts.size(), 1u);
  EXPECT_EQ(some.cuts_left_out, 2);
}

TEST(ExplainTest, WhatCannotBeChangedSaysWhy) {
  const Graph graph = ProfiledChain(2, {1000, 2000, 0, 0, {}});
  const Explanation explanation =
      Explained(graph, FlatCluster(2), MakeStrategy(graph, {{0}, {1}}, {{0}, {1}}, 3, 1));
  EXPECT_EQ(Lever(explanation, "twice as many devices"), std::nullopt);
  EXPECT_THAT(ToText(explanation), HasSubstr("has no sample for each of 2 replicas"));
}

// A stage of one operator gives none away: such a side is no line, such a cut is left out.
TEST(ExplainTest, StagesOfOneOperatorGiveNoneAway) {
  const Graph graph = ProfiledChain(4, {1000, 2000, 0, 0, {}});
  const Explanation explanation = Explained(
      graph, FlatCluster(3), MakeStrategy(graph, {{0}, {1}, {2, 3}}, {{0}, {1}, {2}}, 8, 1));
  ASSERT_EQ(explanation.cuts.size(), 1u);
  EXPECT_EQ(explanation.cuts_left_out, 0);
  const CutReport& cut = explanation.cuts[0];
  EXPECT_EQ(cut.from, StageId(1));
  EXPECT_EQ(cut.smaller.change, "");
  EXPECT_EQ(cut.smaller.reason, "no operator of stage 1 can move to stage 2");
  EXPECT_EQ(cut.larger.change, "n2 to stage 1");
  EXPECT_THAT(ToText(explanation), Not(HasSubstr("not valid")));
  EXPECT_THAT(ToText(explanation), Not(HasSubstr("no operator of")));

  const Explanation none = Explained(
      graph, FlatCluster(4), MakeStrategy(graph, {{0}, {1}, {2}, {3}}, {{0}, {1}, {2}, {3}}, 8, 1));
  EXPECT_TRUE(none.cuts.empty());
  EXPECT_THAT(ToText(none), HasSubstr("none can move"));
}

// Any valid strategy can be explained, and the parts always add up.
TEST(ExplainTest, RandomStrategies) {
  testing::Rng random(11);
  for (int round = 0; round < 60; ++round) {
    const Graph graph = testing::RandomProfile(random, 8);
    const Cluster cluster = testing::RandomCluster(random, 6);
    const OperatorGraph operators = OneOperatorPerNode(graph).value();
    const Strategy strategy =
        testing::RandomStrategy(random, graph, operators, cluster, testing::Uniform(random, 1, 12));
    const auto costs = MakeAnalyticCostModel(graph);
    const auto explanation = Explain(graph, operators, cluster, *costs, strategy);
    if (absl::IsResourceExhausted(explanation.status())) continue;
    ASSERT_TRUE(explanation.ok()) << explanation.status();
    EXPECT_EQ(explanation->compute + explanation->links + explanation->memory + explanation->bubble,
              explanation->step_time);
    EXPECT_GE(explanation->bubble, 0);
    const bool replicated =
        std::any_of(strategy.stages.begin(), strategy.stages.end(),
                    [](const Stage& stage) { return stage.devices.size() > 1; });
    EXPECT_EQ(explanation->levers.size(), replicated ? 7u : 6u);
    for (const CutReport& cut : explanation->cuts) {
      EXPECT_TRUE(cut.smaller.step_time || !cut.smaller.reason.empty());
      EXPECT_TRUE(cut.larger.step_time || !cut.larger.reason.empty());
      EXPECT_FALSE(cut.smaller.change.empty() && cut.larger.change.empty());
      EXPECT_THAT(cut.smaller.reason + cut.larger.reason, Not(HasSubstr("\n")));
    }
  }
}

}  // namespace
}  // namespace stagewright
