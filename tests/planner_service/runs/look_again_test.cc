#include "planner_service/runs/look_again.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(LookAgainTest, LooksOncePerChangeASecondOfStepsApart) {
  LookAgain look;
  look.NoteStep(kSecond, false);
  EXPECT_FALSE(look.due());
  look.NoteStep(kMillisecond, true);
  EXPECT_TRUE(look.due());
  look.NoteAsked();
  EXPECT_FALSE(look.due());
  look.NoteStep(2 * kSecond, true);
  EXPECT_FALSE(look.due());  // The same change.
  look.NoteAsked();
  look.NoteStep(kMillisecond, false);
  look.NoteStep(kMillisecond, true);
  EXPECT_FALSE(look.due());
  look.NoteStep(kSecond, false);
  EXPECT_TRUE(look.due());  // It is not forgotten meanwhile.
}

TEST(LookAgainTest, WhatIsWantedWaitsForASecondOfSteps) {
  LookAgain look;
  look.Want();
  EXPECT_FALSE(look.due());
  look.NoteStep(kSecond, false);
  EXPECT_TRUE(look.due());
}

}  // namespace
}  // namespace stagewright
