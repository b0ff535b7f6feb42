#include "planner_service/planners/pfeife/split_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "tests/planner_service/planners/pfeife/pfeife_cases.h"
#include "tests/support/clusters.h"
#include "tests/support/model_graphs.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright::pfeife {
namespace {

using testing::FlatCluster;
using testing::ProfiledChain;
using testing::Rng;
using testing::Uniform;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

Effort Unlimited() {
  Effort effort;
  effort.most_passes = kNoLimit;
  return effort;
}

// The least estimate of all cuts into the shape's slices.
double Exhaustive(ChainModel& model, const LoopedShape& shape) {
  auto graph = DependencyGraph::Create(shape).value();
  SliceCosts slices;
  double best = std::numeric_limits<double>::max();
  std::vector<int32_t> cuts(shape.slices() + 1, 0);
  cuts.back() = model.size();
  const std::function<void(int32_t)> place = [&](int32_t s) {
    if (s == shape.slices()) {
      model.Slices(cuts, Devices(shape.devices), slices);
      best = std::min(best, graph.LongestPath(slices));
      return;
    }
    for (cuts[s] = cuts[s - 1] + 1; cuts[s] <= model.size() - (shape.slices() - s); ++cuts[s]) {
      place(s + 1);
    }
  };
  place(1);
  return best;
}

// Bounds change what is evaluated, not what is found.
TEST(SplitSearchTest, BoundsDoNotChangeTheAnswer) {
  Rng random(7);
  int64_t bounded = 0;
  for (int i = 0; i < 12; ++i) {
    const Case c(i % 2 == 0 ? testing::RandomProfile(random, 30) : testing::UnevenChain(30),
                 FlatCluster(3, i % 3 == 0 ? kGiB / 2 : 64 * kGiB, 1000, 1e10), 6);
    const auto shapes = PossibleShapes(3, 1 + i % 3, 6);
    const LoopedShape& shape = shapes[Uniform(random, 0, static_cast<int64_t>(shapes.size()) - 1)];
    ChainModel model(c.table, c.operators.dag().order(), 1);
    SearchContext context;
    Effort with = Unlimited(), without = Unlimited();
    BeamOptions options;
    options.width = 6;
    const auto starts = {model.EvenTime(shape.slices())};
    const auto a = SplitSearch(model, Devices(3), options, context, with).Run(shape, starts);
    options.bounds = false;
    const auto b = SplitSearch(model, Devices(3), options, context, without).Run(shape, starts);
    ASSERT_EQ(a.size(), b.size());
    for (size_t k = 0; k < a.size(); ++k) {
      EXPECT_EQ(a[k].points, b[k].points);
      EXPECT_EQ(a[k].time, b[k].time);
      EXPECT_EQ(a[k].excess, b[k].excess);
    }
    bounded += with.bounded;
    EXPECT_EQ(without.bounded, 0);
    EXPECT_LE(with.evaluated, without.evaluated);
  }
  EXPECT_GT(bounded, 1000);
}

TEST(SplitSearchTest, FindsNearlyTheBestOfAllCuts) {
  Rng random(8);
  double lost = 0;
  for (int i = 0; i < 12; ++i) {
    const Case c(i % 2 == 0 ? testing::RandomProfile(random, 18) : testing::CandleGraph(4, 3),
                 FlatCluster(4, 1024 * kGiB, 1000, 1e10), 4);
    const auto shapes = PossibleShapes(4, 1, 4);
    const LoopedShape& shape = shapes[i % shapes.size()];
    ChainModel model(c.table, c.operators.dag().order(), 1);
    SearchContext context;
    Effort effort = Unlimited();
    const auto found = SplitSearch(model, Devices(4), {}, context, effort)
                           .Run(shape, {model.EvenTime(4), model.EvenMemory(4)});
    const double best = Exhaustive(model, shape);
    ASSERT_FALSE(found.empty());
    EXPECT_GE(found.front().time, best * (1 - 1e-9));
    EXPECT_LE(found.front().time, best * 1.05);
    lost += found.front().time / best - 1;
  }
  EXPECT_LE(lost / 12, 0.01);
}

// Figure 4 and table 5: on equal operators, uneven slices beat even ones, and prefetch helps more.
TEST(SplitSearchTest, UnevenSlicesWithPrefetchBeatEvenOnes) {
  const Case c(ProfiledChain(15, {kMillisecond, 2 * kMillisecond, kMiB, 0, {}}),
               FlatCluster(3, 64 * kGiB, 0, 1e10), 3);
  ChainModel model(c.table, c.operators.dag().order(), 1);
  SearchContext context;
  Effort effort = Unlimited();
  SplitSearch search(model, Devices(3), {}, context, effort);
  const LoopedShape plain = MakeShape(3, 1, 3, 3, 0);
  const double even = search.TimeOf(plain, {0, 5, 10, 15});
  const auto uneven = search.Run(plain, {{0, 5, 10, 15}});
  double prefetched = uneven.front().time;
  for (const LoopedShape& shape : PossibleShapes(3, 1, 3)) {
    prefetched = std::min(prefetched, search.Run(shape, {{0, 5, 10, 15}}).front().time);
  }
  EXPECT_LT(uneven.front().time, 0.98 * even);
  EXPECT_LT(prefetched, 0.99 * uneven.front().time);
  // More operators at the beginning, as in the figure.
  const std::vector<int32_t>& points = uneven.front().points;
  EXPECT_GT(points[1], points[3] - points[2]);
}

// Loops shorten the fill of a pipeline.
TEST(SplitSearchTest, LoopsHelpEqualOperators) {
  const Case c(ProfiledChain(48, {kMillisecond, 2 * kMillisecond, kKiB, 0, {}}),
               FlatCluster(4, 64 * kGiB, 0, 1e10), 4);
  Effort effort = Unlimited();
  const double once = BestEstimate(c, 4, 4, 1, {}, effort);
  const double twice = BestEstimate(c, 4, 4, 2, {}, effort);
  EXPECT_LT(twice, 0.95 * once);
}

// Cuts that do not fit are only kept while nothing does.
TEST(SplitSearchTest, MemoryComesBeforeTime) {
  // Three operators of 1 GiB of parameters (4 GiB with Adam) at the front: the fast cut has two of
  // them on a device.
  std::vector<testing::Work> nodes(12, {kMillisecond, 2 * kMillisecond, kKiB, 0, {}});
  for (int32_t v = 1; v < 12; ++v) nodes[v].after = {v - 1};
  for (int32_t v : {0, 1, 2}) nodes[v].parameter_bytes = kGiB;
  const Case c(testing::ProfiledGraph(nodes), FlatCluster(3, 5 * kGiB, 0, 1e10), 3);
  ChainModel model(c.table, c.operators.dag().order(), 1);
  SearchContext context;
  Effort effort = Unlimited();
  SplitSearch search(model, Devices(3), {}, context, effort);
  const auto found = search.Run(MakeShape(3, 1, 3, 3, 0), {model.EvenTime(3)});
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().excess, 0);
  EXPECT_EQ(found.front().points[1], 1);
  EXPECT_EQ(found.front().points[2], 2);
}

TEST(SplitSearchTest, EffortEndsTheSearch) {
  const Case c(testing::UnevenChain(400), FlatCluster(8, 64 * kGiB, 1000, 1e10), 8);
  ChainModel model(c.table, c.operators.dag().order(), 1);
  SearchContext context;
  Effort effort;
  effort.most_passes = 20'000;
  const auto found = SplitSearch(model, Devices(8), {}, context, effort)
                         .Run(MakeShape(8, 2, 8, 8, 1), {model.EvenTime(16)});
  EXPECT_FALSE(found.empty());
  EXPECT_LT(effort.passes, 40'000);
}

TEST(SplitSearchTest, AShapeThatDeadlocksHasNoCuts) {
  const Case c(ProfiledChain(6, {10, 20, 0, 0, {}}), FlatCluster(1), 2);
  ChainModel model(c.table, c.operators.dag().order(), 1);
  SearchContext context;
  Effort effort = Unlimited();
  SplitSearch search(model, Devices(1), {}, context, effort);
  EXPECT_TRUE(search.Run({1, 2, 2, 2, {1}}, {{0, 3, 6}}).empty());
  EXPECT_LT(search.TimeOf({1, 2, 2, 2, {1}}, {0, 3, 6}), 0);
}

}  // namespace
}  // namespace stagewright::pfeife
