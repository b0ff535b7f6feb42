#include "planner_service/search/moves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "common/topology/uniform.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/search_case.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::SearchCase;

TEST(RandomSource, AreTheSameEverywhere) {
  RandomSource draws(1), again(1);
  std::set<int32_t> seen;
  for (int i = 0; i < 200; ++i) {
    const int32_t drawn = draws.Below(6);
    EXPECT_EQ(again.Below(6), drawn);
    seen.insert(drawn);
  }
  EXPECT_EQ(seen, (std::set<int32_t>{0, 1, 2, 3, 4, 5}));
}

// Four equal operators in a row on three devices.
class MovesTest : public ::testing::Test {
 protected:
  bool Allowed() const { return Moves(costs_, options_).Allowed(draft_); }

  const SearchCase case_{testing::ProfiledChain(4, {1000, 2000, 0, 0, {}}),
                         *UniformPreset("uniform:3"), 8};
  const OperatorCosts costs_{case_.problem};
  PlanOptions options_;
  Draft draft_{StrategyKind::kGraph, 2, {{{0, 1}, {0}, false}, {{2, 3}, {1, 2}, false}}};
};

TEST_F(MovesTest, AllowsWhatTheOptionsSay) {
  EXPECT_TRUE(Allowed());
  options_.num_stages = 3;
  EXPECT_FALSE(Allowed());
  options_ = {};
  options_.max_stages = 1;
  EXPECT_FALSE(Allowed());
  options_ = {};
  options_.micro_batch = 4;
  EXPECT_FALSE(Allowed());
  options_ = {};
  options_.sequential = true;
  EXPECT_FALSE(Allowed());
  options_ = {};
  options_.allow_replicas = false;
  EXPECT_FALSE(Allowed());
  options_ = {};
  options_.recompute = RecomputePolicy::kAlways;
  EXPECT_FALSE(Allowed());
  draft_.stages[0].recompute = draft_.stages[1].recompute = true;
  EXPECT_TRUE(Allowed());
  options_.recompute = RecomputePolicy::kNever;
  EXPECT_FALSE(Allowed());
}

TEST_F(MovesTest, AllowsNoMoreLoopsThanAsked) {
  options_.max_loops = 1;
  EXPECT_TRUE(Allowed());
  draft_.stages[0].devices = {1};
  EXPECT_FALSE(Allowed());
  options_.max_loops = 2;
  EXPECT_TRUE(Allowed());
}

TEST_F(MovesTest, AllowsNoMoreReplicasThanSamples) {
  draft_.stages[1].devices = {0, 1, 2};
  EXPECT_FALSE(Allowed());
  draft_.micro_batch = 4;
  EXPECT_TRUE(Allowed());
}

TEST(Moves, ChangeKeepsEveryOperatorOnceAndReachesEveryKindOfNeighbour) {
  Rng random(3);
  bool split = false, merged = false, replicated = false, recomputes = false, micro = false;
  for (int i = 0; i < 4; ++i) {
    const SearchCase c(testing::RandomProfile(random, 10), testing::FlatCluster(4), 8);
    const OperatorCosts costs(c.problem);
    const PlanOptions options;
    const Moves moves(costs, options);
    Draft start;
    start.micro_batch = 2;
    const std::vector<int32_t>& order = c.operators.dag().order();
    start.stages = {{{order.begin(), order.begin() + 5}, {0}, false},
                    {{order.begin() + 5, order.end()}, {1}, false}};
    for (DraftStage& stage : start.stages)
      std::sort(stage.operators.begin(), stage.operators.end());
    ASSERT_TRUE(SortStages(c.operators.dag(), start));
    ListResult last;
    last.busy = {40, 30, 20, 10};
    RandomSource draws(static_cast<uint64_t>(i) + 1);
    for (int draw = 0; draw < 2000; ++draw) {
      Draft draft = start;
      if (!moves.Change(last, draws, draft)) continue;
      std::multiset<int32_t> operators;
      for (const DraftStage& stage : draft.stages) {
        ASSERT_FALSE(stage.operators.empty() || stage.devices.empty()) << ToString(draft);
        EXPECT_TRUE(std::is_sorted(stage.operators.begin(), stage.operators.end()));
        EXPECT_EQ(std::set<int32_t>(stage.devices.begin(), stage.devices.end()).size(),
                  stage.devices.size());
        operators.insert(stage.operators.begin(), stage.operators.end());
        replicated |= stage.devices.size() > 1;
        recomputes |= stage.recompute;
      }
      EXPECT_EQ(operators.size(), 10u) << ToString(draft);
      EXPECT_EQ(std::set<int32_t>(operators.begin(), operators.end()).size(), 10u);
      EXPECT_TRUE(moves.Allowed(draft)) << ToString(draft);
      split |= draft.stages.size() > 2;
      merged |= draft.stages.size() < 2;
      micro |= draft.micro_batch != 2;
    }
  }
  EXPECT_TRUE(split && merged && replicated && recomputes && micro);
}

// Half of a stage that four devices share goes to one or two of them in one step, each operator
// staying where it was.
TEST(Moves, ChangeWidelyNarrowsAPartOfAReplicatedStage) {
  const SearchCase c(testing::ProfiledChain(8, {1000, 2000, 0, 0, {}}), testing::FlatCluster(4), 8);
  const OperatorCosts costs(c.problem);
  const PlanOptions options;
  const Moves moves(costs, options);
  Draft start;
  start.micro_batch = 8;
  start.stages = {{{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3}, false}};
  ListResult last;
  last.busy = {10, 10, 10, 10};
  const auto reaches = [&](auto change) {
    RandomSource draws(1);
    for (int draw = 0; draw < 1000; ++draw) {
      Draft draft = start;
      if (!(moves.*change)(last, draws, draft) || draft.stages.size() != 2) continue;
      const DraftStage& narrow = draft.stages[1];
      EXPECT_TRUE(moves.Allowed(draft)) << ToString(draft);
      EXPECT_EQ(draft.stages[0].operators.size() + narrow.operators.size(), 8u);
      if (draft.stages[0].devices.size() == 4 && narrow.devices.size() < 3 &&
          narrow.operators.size() == 4) {
        return true;
      }
    }
    return false;
  };
  EXPECT_FALSE(reaches(&Moves::Change));
  EXPECT_TRUE(reaches(&Moves::ChangeWidely));
}

}  // namespace
}  // namespace stagewright
