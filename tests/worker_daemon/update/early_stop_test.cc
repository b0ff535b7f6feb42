#include "worker_daemon/update/early_stop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace stagewright {
namespace {

// After which evaluation, from 1, training ends; 0: never.
int StopsAfter(EarlyStop stop, const std::vector<double>& losses) {
  for (size_t i = 0; i < losses.size(); ++i) {
    if (stop.IsOver(losses[i])) return static_cast<int>(i) + 1;
  }
  return 0;
}

TEST(EarlyStop, CountsEvaluationsWithoutABetterLoss) {
  EXPECT_EQ(StopsAfter({2, 0}, {5, 4, 3, 3, 2, 2, 2, 1}), 7);
  EXPECT_EQ(StopsAfter({1, 0}, {5, 4, 3, 3}), 4);
  EXPECT_EQ(StopsAfter({3, 0}, {5, 6, 7, 4, 8, 9, 3}), 0);
}

TEST(EarlyStop, WantsMoreThanMinDelta) {
  EXPECT_EQ(StopsAfter({2, 0.5}, {5, 4.75, 4.5, 4}), 3);
  EXPECT_EQ(StopsAfter({2, 0.5}, {5, 4.75, 4.25, 4}), 0);
}

TEST(EarlyStop, NeverEndsWithoutPatience) { EXPECT_EQ(StopsAfter({0, 0}, {1, 2, 3, 4}), 0); }

TEST(EarlyStop, GoesOnWhereItWas) {
  const std::vector<double> losses = {5, 4, 4.5, 3, 3.5, 3.2, 3.1};
  for (size_t cut = 0; cut < losses.size(); ++cut) {
    EarlyStop first(3, 0);
    for (size_t i = 0; i < cut; ++i) EXPECT_FALSE(first.IsOver(losses[i]));
    const std::vector<double> rest(losses.begin() + static_cast<std::ptrdiff_t>(cut), losses.end());
    EXPECT_EQ(StopsAfter({3, 0, first.history()}, rest), static_cast<int>(losses.size() - cut));
  }
}

TEST(EarlyStop, WhatIsNoNumberIsNotBetter) {
  EXPECT_EQ(StopsAfter({2, 0}, {std::nan(""), std::nan("")}), 2);
}

}  // namespace
}  // namespace stagewright
