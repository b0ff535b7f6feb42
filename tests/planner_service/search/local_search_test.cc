#include "planner_service/search/local_search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/topology/uniform.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/search/starts.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/search_case.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::SearchCase;

constexpr double kThreshold = 0.012;

TEST(LocalSearchTest, ABadCutIsMendedUpToTheBound) {
  // Twelve equal operators over two devices, cut after the first.
  const SearchCase c(testing::ProfiledChain(12, {1000, 2000, 0, 0, {}}),
                     *UniformPreset("uniform:2"), 64);
  const OperatorCosts costs(c.problem);
  const PlanOptions options;
  const SearchContext context;
  LocalSearch local_search(costs, options, context);
  Draft draft;
  draft.stages = {{{0}, {0}, false}, {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {1}, false}};
  const std::optional<RatedDraft> start = local_search.Rate(draft, false);
  ASSERT_TRUE(start.has_value());
  RandomSource random(1);
  const RatedDraft best = local_search.Improve(*start, 500'000, kThreshold, random);
  const Nanos bound = 64 * 12 * 3000 / 2;
  EXPECT_GT(start->estimate, bound * 9 / 5);
  EXPECT_LT(best.estimate, bound * 21 / 20);
}

// A step ends with the slowest of eight equal branches.
TEST(LocalSearchTest, ChangingAllEqualBranchesPaysWhereChangingOneDoesNot) {
  std::vector<testing::Work> nodes;
  Draft draft;
  std::vector<int32_t> ends;
  for (int32_t branch = 0; branch < 8; ++branch) {
    nodes.push_back({1'000'000, 2'000'000, 0, 0, {}});
    nodes.push_back({1'000'000, 2'000'000, 0, 0, {2 * branch}});
    ends.push_back(2 * branch + 1);
    draft.stages.push_back({{2 * branch, 2 * branch + 1}, {2 * branch}, false});
  }
  nodes.push_back({10'000, 20'000, 0, 0, ends});
  draft.stages.push_back({{16}, {0}, false});
  const SearchCase c(testing::ProfiledGraph(nodes), *UniformPreset("uniform:16"), 16);
  const OperatorCosts costs(c.problem);
  PlanOptions options;
  options.micro_batch = 1;
  options.allow_replicas = false;
  const SearchContext context;
  LocalSearch local_search(costs, options, context);
  const Moves moves(costs, options);
  ASSERT_TRUE(moves.HasAlike());
  const Nanos start = local_search.Rate(draft, true)->estimate;
  ListResult last;
  last.busy.assign(16, 1);
  const auto best = [&](auto change) {
    RandomSource random(1);
    Nanos least = start;
    for (int i = 0; i < 1000; ++i) {
      Draft neighbour = draft;
      if (!(moves.*change)(last, random, neighbour)) continue;
      const auto rated = local_search.Rate(std::move(neighbour), true);
      if (rated.has_value()) least = std::min(least, rated->estimate);
    }
    return least;
  };
  EXPECT_GT(best(&Moves::Change), start * 98 / 100);
  EXPECT_LT(best(&Moves::ChangeAlike), start * 60 / 100);
}

TEST(LocalSearchTest, EveryResultKeepsTheOptionsAndIsAccepted) {
  Rng random(5);
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const SearchCase c(testing::RandomProfile(random, 12), testing::RandomCluster(random, 6), 8);
    const OperatorCosts costs(c.problem);
    PlanOptions options;
    options.allow_replicas = i % 2 == 0;
    options.max_loops = i % 3;
    options.split_backward = i % 4 < 2;
    options.num_stages = i % 5 == 4 ? 3 : 0;
    if (options.num_stages > 0) options.max_loops = 0;
    const SearchContext context;
    LocalSearch local_search(costs, options, context);
    RandomSource draws(i);
    for (StrategyKind kind : {StrategyKind::kGraph, StrategyKind::kSequential}) {
      for (const Draft& draft : StartDrafts(costs, options, kind, SearchContext())) {
        const std::optional<RatedDraft> start = local_search.Rate(draft, true);
        if (!start.has_value()) continue;
        const RatedDraft best = local_search.Improve(*start, 5'000, kThreshold, draws);
        EXPECT_LE(best.estimate, start->estimate);
        const Strategy strategy = local_search.ToStrategy(best);
        EXPECT_EQ(strategy.kind, kind);
        if (options.num_stages > 0) {
          EXPECT_EQ(strategy.stages.size(), 3u);
        }
        std::vector<int32_t> loops(c.cluster.size(), 0);
        for (const Stage& stage : strategy.stages) {
          for (DeviceId d : stage.devices) ++loops[d.index()];
          if (!options.allow_replicas) {
            EXPECT_EQ(stage.devices.size(), 1u);
          }
        }
        if (options.max_loops > 0) {
          EXPECT_LE(*std::max_element(loops.begin(), loops.end()), options.max_loops);
        }
        const auto evaluation =
            Evaluate(c.graph, c.cluster, *c.costs, strategy, {c.problem.optimizer, false});
        EXPECT_TRUE(evaluation.ok() || absl::IsResourceExhausted(evaluation.status()))
            << evaluation.status();
      }
    }
  }
}

// The promise of a draft is near its estimate where devices are mostly busy, and orders drafts.
TEST(LocalSearchTest, WhatPromisesMoreIsEstimatedFaster) {
  const SearchCase c(testing::ProfiledChain(12, {1000, 2000, 0, 0, {}}),
                     *UniformPreset("uniform:2"), 64);
  const OperatorCosts costs(c.problem);
  const PlanOptions options;
  const SearchContext context;
  LocalSearch local_search(costs, options, context);
  Draft even;
  even.stages = {{{0, 1, 2, 3, 4, 5}, {0}, false}, {{6, 7, 8, 9, 10, 11}, {1}, false}};
  Draft uneven;
  uneven.stages = {{{0, 1}, {0}, false}, {{2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {1}, false}};
  const std::optional<RatedDraft> rated = local_search.Rate(even, false);
  ASSERT_TRUE(rated.has_value());
  const double promise = *local_search.Promise(even);
  EXPECT_LE(promise, static_cast<double>(rated->estimate));
  EXPECT_GT(promise, 0.8 * static_cast<double>(rated->estimate));
  EXPECT_GT(*local_search.Promise(uneven), 1.5 * promise);
  Draft cyclic;
  cyclic.stages = {{{0, 2}, {0}, false}, {{1, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {1}, false}};
  EXPECT_FALSE(local_search.Promise(cyclic).has_value());
}

TEST(LocalSearchTest, EqualSeedsGiveEqualDrafts) {
  Rng random(6);
  const SearchCase c(testing::RandomProfile(random, 20), testing::RandomCluster(random, 6), 8);
  const OperatorCosts costs(c.problem);
  const PlanOptions options;
  const SearchContext context;
  std::vector<Draft> results;
  for (int i = 0; i < 2; ++i) {
    LocalSearch local_search(costs, options, context);
    RandomSource draws(9);
    const std::vector<Draft> starts =
        StartDrafts(costs, options, StrategyKind::kGraph, SearchContext());
    const std::optional<RatedDraft> start = local_search.Rate(starts.front(), false);
    ASSERT_TRUE(start.has_value());
    results.push_back(local_search.Improve(*start, 50'000, kThreshold, draws).draft);
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace stagewright
