#include "worker_daemon/profiler/repeats.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(Repeats, MedianLeavesOutliersOut) {
  EXPECT_EQ(RobustMedian({7}), 7);
  EXPECT_EQ(RobustMedian({1, 3}), 2);
  EXPECT_EQ(RobustMedian({10, 11, 12, 500, 501}), 11);
  EXPECT_EQ(RobustMedian({10, 10, 10, 10, 90}), 10);
}

TEST(Repeats, SettledIsAPreciseMedianOfFive) {
  EXPECT_FALSE(IsSettled({10, 10, 10, 10}));
  EXPECT_TRUE(IsSettled({10, 10, 10, 10, 10}));
  EXPECT_TRUE(IsSettled({100, 101, 99, 100, 400}));
  EXPECT_FALSE(IsSettled({100, 120, 80, 110, 90}));
  // The deviation, 14.8, over the root of 60 is less than 2 % of 100.
  std::vector<double> many;
  for (int i = 0; i < 60; ++i) many.push_back(i % 2 == 0 ? 90 : 110);
  EXPECT_TRUE(IsSettled(many));
}

}  // namespace
}  // namespace stagewright
