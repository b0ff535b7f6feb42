#include "planner_service/models/draft.h"

#include <gtest/gtest.h>

#include "common/strategy/check_strategy.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/search_case.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::SearchCase;

TEST(DraftTest, StrategiesOfOneMicroBatchSizeRoundTrip) {
  Rng random(3);
  int kept = 0;
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    const SearchCase c(testing::RandomProfile(random, 10), testing::FlatCluster(5), 8);
    const Strategy strategy =
        testing::RandomStrategy(random, c.graph, c.operators, c.cluster, c.problem.mini_batch);
    const std::optional<Draft> draft = ToDraft(c.problem, strategy);
    if (!draft.has_value()) continue;
    ++kept;
    const Strategy again = ToStrategy(c.problem, *draft);
    EXPECT_TRUE(CheckStrategy(c.graph, c.cluster, again).ok())
        << CheckStrategy(c.graph, c.cluster, again);
    EXPECT_EQ(again.edges, strategy.edges);
    const std::optional<Draft> twice = ToDraft(c.problem, again);
    ASSERT_TRUE(twice.has_value());
    EXPECT_EQ(*twice, *draft);
  }
  EXPECT_GT(kept, 50);
}

TEST(DraftTest, DifferentMicroBatchesHaveNoDraft) {
  const SearchCase c(testing::ProfiledChain(2, {10, 20, 0, 0, {}}), testing::FlatCluster(2), 4);
  Strategy strategy = testing::MakeStrategy(c.graph, {{0}, {1}}, {{0}, {1}}, 4, 2);
  EXPECT_TRUE(ToDraft(c.problem, strategy).has_value());
  strategy.stages[1].micro_batch = 4;
  EXPECT_FALSE(ToDraft(c.problem, strategy).has_value());
}

TEST(DraftTest, StagesAreSortedOrACycleIsFound) {
  // 0 -> 1 -> 2, and 3 alone.
  std::vector<testing::Work> nodes(4, {10, 20, 0, 0, {}});
  nodes[1].after = {0};
  nodes[2].after = {1};
  const SearchCase c(testing::ProfiledGraph(nodes), testing::FlatCluster(2), 4);
  Draft draft;
  draft.stages = {{{2, 3}, {0}, false}, {{0, 1}, {1}, false}};
  ASSERT_TRUE(SortStages(c.operators.dag(), draft));
  EXPECT_EQ(ToString(draft), "g b1 | 0-1@1 | 2-3@0");
  Draft cyclic;
  cyclic.stages = {{{0, 2}, {0}, false}, {{1, 3}, {1}, true}};
  EXPECT_FALSE(SortStages(c.operators.dag(), cyclic));
  EXPECT_EQ(ToString(cyclic), "g b1 | 0,2@0 | 1,3@1r");
  cyclic.kind = StrategyKind::kSequential;
  EXPECT_FALSE(SortStages(c.operators.dag(), cyclic));
}

}  // namespace
}  // namespace stagewright
