#include "planner_service/runs/setbacks.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

TEST(Setbacks, ARunWithProgressIsFollowedAtOnce) {
  Setbacks setbacks;
  for (int64_t step : {10, 20, 30, 40}) {
    setbacks.Note("worker a was lost", step);
    EXPECT_EQ(setbacks.BackOff(), absl::ZeroDuration());
    EXPECT_FALSE(setbacks.Loops());
  }
}

TEST(Setbacks, RunsWithoutWaitLongerAndLonger) {
  Setbacks setbacks;
  setbacks.Note("cause 0", 10);
  absl::Duration last = absl::ZeroDuration();
  for (int i = 1; i < 40; ++i) {
    setbacks.Note(absl::StrCat("cause ", i), 10);
    EXPECT_TRUE(setbacks.BackOff() > last || last == kLongestBackOff);
    last = setbacks.BackOff();
    EXPECT_FALSE(setbacks.Loops());
  }
  EXPECT_EQ(last, kLongestBackOff);
  setbacks.Note("cause", 11);
  EXPECT_EQ(setbacks.BackOff(), absl::ZeroDuration());
}

TEST(Setbacks, TheSameCauseAtTheSameStepIsALoop) {
  Setbacks setbacks;
  setbacks.Note("worker b was lost", 80);
  setbacks.Note("worker a was lost", 75);  // A run that repeats steps makes no progress.
  setbacks.Note("worker a was lost", 80);
  EXPECT_FALSE(setbacks.Loops());
  setbacks.Note("worker a was lost", 78);
  EXPECT_TRUE(setbacks.Loops());
}

TEST(Setbacks, WhatMayPassIsNoLoopAndIsWaitedForAsLong) {
  Setbacks setbacks;
  for (int i = 0; i < 40; ++i) {
    setbacks.Note("the disk is full", 10, /*may_pass=*/true);
    EXPECT_FALSE(setbacks.Loops());
  }
  EXPECT_EQ(setbacks.BackOff(), kLongestBackOff);
  for (int i = 0; i < kMostAlike - 1; ++i) setbacks.Note("the disk is full", 10);
  EXPECT_FALSE(setbacks.Loops());
}

TEST(Setbacks, ARunThatNeverStartedMakesNoProgress) {
  Setbacks setbacks;
  for (int i = 0; i < kMostAlike; ++i) setbacks.Note("worker a did not answer", 0);
  EXPECT_TRUE(setbacks.Loops());
}

}  // namespace
}  // namespace stagewright
