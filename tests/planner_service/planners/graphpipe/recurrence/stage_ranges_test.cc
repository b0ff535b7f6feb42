#include "planner_service/planners/graphpipe/recurrence/stage_ranges.h"

#include <gtest/gtest.h>

#include "tests/planner_service/planners/graphpipe/search_case.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::SearchCase;

TEST(StageRangesTest, ShortRangesAreAllThereWithTheExtentsOfTheOracle) {
  Rng random(41);
  for (int round = 0; round < 30; ++round) {
    const SearchCase c(testing::RandomProfile(random, 24), testing::FlatCluster(2), 8);
    StageRanges ranges(c.oracle, c.frontier);
    for (int32_t end = 0; end <= c.oracle.size(); ++end) {
      for (int32_t length = 1; length <= end; ++length) {
        const StageRanges::Range* range = ranges.At(end, length - 1);
        ASSERT_NE(range, nullptr);
        ASSERT_EQ(range->begin, end - length);
        const StageOracle::Extent& extent = c.oracle.At(range->begin, end);
        EXPECT_EQ(range->extent.resident, extent.resident);
        EXPECT_EQ(range->extent.in_per_sample, extent.in_per_sample);
        EXPECT_EQ(range->extent.out_per_sample, extent.out_per_sample);
        EXPECT_LE(ranges.LeastResident(range->begin, end), extent.resident);
        EXPECT_LE(ranges.LeastGradients(range->begin, end), extent.gradients);
      }
      EXPECT_EQ(ranges.At(end, end), nullptr);
    }
  }
}

TEST(StageRangesTest, ParentsFollowTheFrontierAcrossTheRange) {
  Rng random(42);
  for (int round = 0; round < 30; ++round) {
    const SearchCase c(testing::RandomProfile(random, 16), testing::FlatCluster(2), 8);
    StageRanges ranges(c.oracle, c.frontier);
    for (int32_t end = 1; end <= c.oracle.size(); ++end) {
      for (size_t r = 0; ranges.At(end, r) != nullptr; ++r) {
        const int32_t begin = ranges.At(end, r)->begin;
        for (size_t k = 0; k < c.frontier.At(begin).size(); ++k) {
          auto seen = static_cast<int32_t>(k);
          for (int32_t p = begin; p < end && seen >= 0; ++p) seen = c.frontier.At(p)[seen].parent;
          EXPECT_EQ(ranges.Parents(end, r)[k], seen);
        }
      }
    }
  }
}

TEST(StageRangesTest, WithoutSharedParametersNothingIsLost) {
  const SearchCase c(testing::ProfiledChain(6, {1, 2, 1, 100}), testing::FlatCluster(2), 8);
  StageRanges ranges(c.oracle, c.frontier);
  EXPECT_EQ(ranges.LeastResident(1, 5), c.oracle.At(1, 5).resident);
  EXPECT_EQ(ranges.LeastGradients(1, 5), c.oracle.At(1, 5).gradients);
  EXPECT_GT(ranges.LeastGradients(1, 5), 0);
}

TEST(StageRangesTest, TheNumberOfLongRangesGrowsWithTheLogarithmOfTheLength) {
  const SearchCase c(testing::ProfiledChain(4000, {1, 2, 1, 1}), testing::FlatCluster(2), 8);
  StageRanges ranges(c.oracle, c.frontier);
  size_t count = 0;
  int32_t last = 4000;
  for (; const auto* range = ranges.At(4000, count); ++count) {
    ASSERT_LT(range->begin, last);
    // Steps stay below a fiftieth of the length, so that stages can be balanced.
    EXPECT_LE(last - range->begin, 1 + (4000 - range->begin) / 24);
    last = range->begin;
  }
  EXPECT_EQ(last, 0);  // The whole order is one of them.
  EXPECT_LT(count, 96u * 8);
}

}  // namespace
}  // namespace stagewright
