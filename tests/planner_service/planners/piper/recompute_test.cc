#include "planner_service/planners/piper/recompute.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/random.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::Uniform;

double Exhaustive(const std::vector<RecomputeItem>& items, double needed) {
  double best = std::numeric_limits<double>::infinity();
  for (uint32_t mask = 0; mask < (uint32_t{1} << items.size()); ++mask) {
    RecomputeItem sum;
    for (size_t i = 0; i < items.size(); ++i) {
      if (((mask >> i) & 1) == 0) continue;
      sum.time += items[i].time;
      sum.bytes += items[i].bytes;
    }
    if (sum.bytes >= needed) best = std::min(best, sum.time);
  }
  return best;
}

TEST(RecomputeTest, EqualsExhaustiveSearch) {
  Rng random(1);
  for (int i = 0; i < 300; ++i) {
    std::vector<RecomputeItem> items(Uniform(random, 1, 12));
    double all = 0;
    for (RecomputeItem& item : items) {
      item = {static_cast<double>(Uniform(random, 1, 30)),
              static_cast<double>(Uniform(random, 1, 30))};
      all += item.bytes;
    }
    const double needed = static_cast<double>(Uniform(random, 1, 100)) / 100 * all;
    const RecomputeAnswer answer = ChooseRecompute(items, needed, 100'000);
    EXPECT_TRUE(answer.exact);
    EXPECT_NEAR(answer.time, Exhaustive(items, needed), 1e-6);
    RecomputeItem sum;
    for (size_t k = 0; k < items.size(); ++k) {
      if (!answer.chosen[k]) continue;
      sum.time += items[k].time;
      sum.bytes += items[k].bytes;
    }
    EXPECT_GE(sum.bytes, needed);
    EXPECT_NEAR(sum.time, answer.time, 1e-9);
  }
}

TEST(RecomputeTest, GreedyIsNotGoodEnough) {
  // The best ratio does not fill the gap; the one item that does is cheaper than both.
  const std::vector<RecomputeItem> items = {{1, 10}, {5, 20}, {4.5, 15}};
  const RecomputeAnswer answer = ChooseRecompute(items, 12, 1000);
  EXPECT_DOUBLE_EQ(answer.time, 4.5);
}

TEST(RecomputeTest, AnswersWhenCutShort) {
  std::vector<RecomputeItem> items;
  for (int i = 0; i < 200; ++i) items.push_back({100.0 + i % 7, 100.0 + i % 11});
  const RecomputeAnswer answer = ChooseRecompute(items, 9876, 10);
  EXPECT_FALSE(answer.exact);
  double bytes = 0;
  for (size_t i = 0; i < items.size(); ++i) bytes += answer.chosen[i] ? items[i].bytes : 0;
  EXPECT_GE(bytes, 9876);
}

}  // namespace
}  // namespace stagewright
