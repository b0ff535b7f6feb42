#include "planner_service/runs/recent_steps.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(RecentStepsTest, TheFirstStepCountsUntilThereIsAnother) {
  RecentSteps steps;
  EXPECT_EQ(steps.Median(), 0);
  steps.Add(900);
  EXPECT_EQ(steps.Median(), 900);
  EXPECT_EQ(steps.size(), 0u);
  steps.Add(10);
  EXPECT_EQ(steps.Median(), 10);
  EXPECT_EQ(steps.size(), 1u);
  steps.Add(20);
  steps.Add(500);
  EXPECT_EQ(steps.Median(), 20);
}

TEST(RecentStepsTest, OldStepsAreForgotten) {
  RecentSteps steps;
  for (int64_t i = 0; i < 200; ++i) steps.Add(Nanos(i));
  EXPECT_EQ(steps.size(), RecentSteps::kMost);
  EXPECT_EQ(steps.Median(), 200 - 64 + 32);
}

}  // namespace
}  // namespace stagewright
