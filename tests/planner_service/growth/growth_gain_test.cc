#include "planner_service/growth/growth_gain.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

// Half of each step of 10 ms would be saved; a start takes 1 s, so that the change takes 3.
GrowthOffer Halved(int64_t steps_left) {
  return {.steps_left = steps_left,
          .step_time = 10 * kMillisecond,
          .before = 8 * kMillisecond,
          .after = 4 * kMillisecond,
          .start = absl::Seconds(1)};
}

TEST(GrowthGainTest, TheStepsLeftMustSaveTwiceTheChange) {
  EXPECT_FALSE(PaysToGrow(Halved(1200)).pays);
  EXPECT_TRUE(PaysToGrow(Halved(1201)).pays);
}

TEST(GrowthGainTest, SaysItsNumbers) {
  EXPECT_EQ(PaysToGrow(Halved(2000)).why,
            "a step would take 50 % less, which saves 10.0 s of the 2000 steps left, more than "
            "twice the 3.0 s that the change costs");
  EXPECT_EQ(PaysToGrow(Halved(1000)).why,
            "a step would take 50 % less, which saves 5.0 s of the 1000 steps left, not more than "
            "twice the 3.0 s that the change costs");
}

TEST(GrowthGainTest, AStartThatNobodySawCountsAsALongOne) {
  GrowthOffer offer = Halved(12'000);
  EXPECT_TRUE(PaysToGrow(offer).pays);
  offer.start.reset();  // 31 s for the change.
  EXPECT_FALSE(PaysToGrow(offer).pays);
  offer.steps_left = 12'401;
  EXPECT_TRUE(PaysToGrow(offer).pays);
}

TEST(GrowthGainTest, NothingToGainNeverPays) {
  GrowthOffer offer = Halved(1'000'000'000);
  offer.after = offer.before + 1;
  EXPECT_FALSE(PaysToGrow(offer).pays);
  offer.before = offer.after = 0;
  EXPECT_FALSE(PaysToGrow(offer).pays);
  offer = Halved(-5);
  EXPECT_FALSE(PaysToGrow(offer).pays);
}

}  // namespace
}  // namespace stagewright
