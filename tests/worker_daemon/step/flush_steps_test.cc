#include "worker_daemon/step/flush_steps.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

namespace stagewright {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

TEST(FlushStepsTest, ThoseOfAPolicyAreKnownBeforehand) {
  FlushSteps steps(4);
  EXPECT_EQ(steps.Next(DeviceId(0), 0), 4);
  EXPECT_EQ(steps.Next(DeviceId(0), 3), 4);
  EXPECT_EQ(steps.Next(DeviceId(0), 4), 8);
  EXPECT_EQ(FlushSteps(0).Next(DeviceId(0), 7), kNever);
}

TEST(FlushStepsTest, OneThatWasSettledComesBesides) {
  FlushSteps steps(10);
  EXPECT_EQ(steps.Next(DeviceId(0), 0), 10);
  ASSERT_TRUE(steps.Offer(5));
  EXPECT_EQ(steps.settled(), 0);
  EXPECT_EQ(steps.Next(DeviceId(0), 1), 10);  // Not yet.
  EXPECT_EQ(steps.Next(DeviceId(0), 2), 10);
  steps.Settle(5);
  EXPECT_EQ(steps.settled(), 5);
  EXPECT_EQ(steps.Next(DeviceId(0), 3), 5);
  EXPECT_EQ(steps.Next(DeviceId(0), 4), 5);
  EXPECT_EQ(steps.Next(DeviceId(0), 5), 10);
}

TEST(FlushStepsTest, AnOfferIsLateOnceADeviceHasBegunWhatFollowsFromIt) {
  FlushSteps steps(0);
  steps.Next(DeviceId(0), 3);
  steps.Next(DeviceId(1), 1);
  EXPECT_FALSE(steps.Offer(5));
  EXPECT_EQ(steps.Next(DeviceId(1), 2), kNever);  // Nothing is open.
  EXPECT_TRUE(steps.Offer(6));
}

TEST(FlushStepsTest, NobodyComesSoFarThatAnOpenOfferCouldNotBeKept) {
  for (const bool settles : {true, false}) {
    FlushSteps steps(0);
    steps.Next(DeviceId(0), 2);
    ASSERT_TRUE(steps.Offer(5));
    std::atomic<bool> decided = false;
    std::thread device([&] {
      const int64_t next = steps.Next(DeviceId(0), 3);
      EXPECT_TRUE(decided);
      EXPECT_EQ(next, settles ? 5 : kNever);
    });
    decided = true;
    settles ? steps.Settle(5) : steps.Withdraw();
    device.join();
  }
}

TEST(FlushStepsTest, NobodyWaitsOnceItIsClosed) {
  FlushSteps steps(0);
  ASSERT_TRUE(steps.Offer(5));
  std::thread device([&] { EXPECT_EQ(steps.Next(DeviceId(0), 3), kNever); });
  steps.Close();
  device.join();
  EXPECT_FALSE(steps.Offer(9));
  EXPECT_EQ(steps.Next(DeviceId(0), 7), kNever);
}

TEST(FlushStepsTest, WhatIsToldAgainChangesNothing) {
  FlushSteps steps(0);
  ASSERT_TRUE(steps.Offer(5));
  steps.Settle(5);
  steps.Next(DeviceId(0), 8);
  steps.Settle(5);
  EXPECT_TRUE(steps.Offer(5));
  EXPECT_EQ(steps.Next(DeviceId(0), 9), kNever);
}

}  // namespace
}  // namespace stagewright
