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

TEST(RecentStepsTest, ThePaceChangesWhenMostOfTheNewestDiffer) {
  RecentSteps steps;
  for (int i = 0; i < 40; ++i) steps.Add(Nanos(100 + i % 3));
  EXPECT_FALSE(steps.Changed());
  for (int i = 0; i < 3; ++i) steps.Add(1000);  // A hiccup.
  EXPECT_FALSE(steps.Changed());
  for (int i = 0; i < 4; ++i) steps.Add(130);
  EXPECT_TRUE(steps.Changed());
  for (int i = 0; i < 60; ++i) steps.Add(130);
  EXPECT_FALSE(steps.Changed());
  for (int i = 0; i < 8; ++i) steps.Add(100);
  EXPECT_TRUE(steps.Changed());
}

TEST(RecentStepsTest, AFewStepsAreNoPace) {
  RecentSteps steps;
  for (int i = 0; i < 15; ++i) steps.Add(100);
  for (int i = 0; i < 9; ++i) steps.Add(Nanos(i < 8 ? 500 : 100));
  EXPECT_EQ(steps.size(), 23u);
  EXPECT_FALSE(steps.Changed());
}

}  // namespace
}  // namespace stagewright
