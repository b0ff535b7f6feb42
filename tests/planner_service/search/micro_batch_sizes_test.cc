#include "planner_service/search/micro_batch_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner_service/models/stage_oracle.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/search_case.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::FlatCluster;
using ::testing::IsEmpty;
using testing::ProfiledChain;
using testing::SearchCase;

class MicroBatchSizesTest : public ::testing::Test {
 protected:
  MicroBatchSizesTest() { problem_.graph = &graph_; }
  std::vector<int64_t> Sizes(int64_t mini_batch, Rounding rounding,
                             const PlanOptions& options = {}) {
    problem_.mini_batch = mini_batch;
    return MicroBatchSizes(problem_, options, rounding);
  }
  const Graph graph_ = ProfiledChain(2, {});
  Problem problem_;
};

TEST_F(MicroBatchSizesTest, FewAreAllTried) {
  for (const Rounding rounding : {Rounding::kDown, Rounding::kUp}) {
    EXPECT_THAT(Sizes(12, rounding), ElementsAre(1, 2, 3, 4, 6, 12));
    EXPECT_THAT(Sizes(12, rounding, {.micro_batch = 4}), ElementsAre(4));
    // 2 * 3 * 5 * 7 has as many divisors as are tried.
    EXPECT_EQ(Sizes(210, rounding).size(), kMostMicroBatchSizes);
  }
}

TEST_F(MicroBatchSizesTest, OfManyThoseNextToPowersOfTwo) {
  EXPECT_THAT(Sizes(360, Rounding::kDown), ElementsAre(1, 2, 4, 8, 15, 30, 60, 120, 180, 360));
  EXPECT_THAT(Sizes(360, Rounding::kUp), ElementsAre(1, 2, 4, 8, 18, 36, 72, 180, 360));
}

TEST_F(MicroBatchSizesTest, EachIsTheNextOneToItsPower) {
  for (int64_t mini_batch : {360, 1000, 5040, 30030, 720720, 1 << 20}) {
    problem_.mini_batch = mini_batch;
    const std::vector<int64_t> all = MicroBatches(problem_, {});
    if (all.size() <= kMostMicroBatchSizes) continue;
    std::vector<int64_t> below, above;
    for (int64_t power = 1; power <= 2 * mini_batch; power *= 2) {
      const auto first =
          std::find_if(all.begin(), all.end(), [&](int64_t s) { return s >= power; });
      const auto last =
          std::find_if(all.rbegin(), all.rend(), [&](int64_t s) { return s <= power; });
      if (first != all.end() && (above.empty() || above.back() != *first)) above.push_back(*first);
      if (last != all.rend() && (below.empty() || below.back() != *last)) below.push_back(*last);
    }
    EXPECT_EQ(Sizes(mini_batch, Rounding::kUp), above) << mini_batch;
    EXPECT_EQ(Sizes(mini_batch, Rounding::kDown), below) << mini_batch;
    EXPECT_EQ(below.back(), mini_batch);
  }
}

TEST_F(MicroBatchSizesTest, TheNextSizeIsOnTheSideAskedFor) {
  const std::vector<int64_t> sizes = {2, 6, 9};
  EXPECT_EQ(SizeNextTo(sizes, 7, Rounding::kDown), 6);
  EXPECT_EQ(SizeNextTo(sizes, 7, Rounding::kUp), 9);
  EXPECT_EQ(SizeNextTo(sizes, 6, Rounding::kDown), 6);
  EXPECT_EQ(SizeNextTo(sizes, 6, Rounding::kUp), 6);
  EXPECT_EQ(SizeNextTo(sizes, 1, Rounding::kDown), std::nullopt);
  EXPECT_EQ(SizeNextTo(sizes, 10, Rounding::kUp), std::nullopt);
}

TEST_F(MicroBatchSizesTest, ReplicasNeedASampleEach) {
  problem_.mini_batch = 12;
  EXPECT_THAT(MicroBatches(problem_, {}, 5), ElementsAre(6, 12));
  EXPECT_EQ(MostReplicas(problem_, {}, 6), 6);
  EXPECT_EQ(MostReplicas(problem_, {.allow_replicas = false}, 6), 1);
}

TEST(EvenlySpreadTest, KeepsTheEnds) {
  EXPECT_THAT(EvenlySpread({9, 7, 5}, 3), ElementsAre(9, 7, 5));
  EXPECT_THAT(EvenlySpread({9, 8, 7, 6, 5, 4, 3}, 3), ElementsAre(9, 6, 3));
  EXPECT_THAT(EvenlySpread({}, 3), IsEmpty());
}

TEST(PromisingSizesTest, ThoseThatFillThePipelineSoonComeFirst) {
  // Twice the samples take twice the time: small micro-batches fill a pipeline sooner.
  const SearchCase c(ProfiledChain(4, {kMillisecond, kMillisecond, 0, 0, {}}), FlatCluster(4), 8);
  const StageOracle oracle(c.problem, ModelOrder(c.problem));
  const SearchContext context;
  EXPECT_THAT(PromisingSizes(oracle, {}, {3}, 3, context), ElementsAre(1, 2, 4));
  const SizePromise no_small = {3, [](int64_t size) { return size < 4; }};
  EXPECT_THAT(PromisingSizes(oracle, {}, no_small, 3, context), ElementsAre(4, 8));
  SearchContext late;
  late.Cancel();
  EXPECT_THAT(PromisingSizes(oracle, {}, {3}, 3, late), IsEmpty());
}

}  // namespace
}  // namespace stagewright
