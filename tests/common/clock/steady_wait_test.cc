#include "common/clock/steady_wait.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/clock/steady_now.h"

namespace stagewright {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(20);
constexpr absl::Duration kForEver = absl::Hours(1000);

TEST(SteadyWaitTest, ADeadlineEndsItAndNotBefore) {
  absl::Mutex mutex;
  const bool never = false;
  absl::MutexLock lock(&mutex);
  const absl::Time begin = SteadyNow();
  EXPECT_FALSE(AwaitFor(mutex, absl::Condition(&never), kShort));
  EXPECT_GE(SteadyNow() - begin, kShort);
  EXPECT_FALSE(AwaitUntil(mutex, absl::Condition(&never), SteadyNow() + kShort));
  EXPECT_GE(SteadyNow() - begin, 2 * kShort);
}

TEST(SteadyWaitTest, ADeadlineThatHasPassedEndsItAtOnce) {
  absl::Mutex mutex;
  const bool never = false;
  const bool always = true;
  absl::MutexLock lock(&mutex);
  for (const absl::Time past : {absl::InfinitePast(), SteadyNow()}) {
    EXPECT_FALSE(AwaitUntil(mutex, absl::Condition(&never), past));
    EXPECT_TRUE(AwaitUntil(mutex, absl::Condition(&always), past));
  }
}

TEST(SteadyWaitTest, WhatIsWaitedForEndsItHoweverLateItMayBe) {
  for (const absl::Duration patience : {kForEver, absl::InfiniteDuration()}) {
    absl::Mutex mutex;
    bool come = false;
    std::thread other([&] {
      absl::SleepFor(kShort);
      absl::MutexLock lock(&mutex);
      come = true;
    });
    {
      absl::MutexLock lock(&mutex);
      EXPECT_TRUE(AwaitFor(mutex, absl::Condition(&come), patience));
    }
    other.join();
  }
}

// Whoever was woken and has yet to get its mutex, which another thread holds, hides nobody's time.
TEST(SteadyWaitTest, ManyShortWaitsBesideALongOneEndInTime) {
  constexpr absl::Duration kLong = absl::Seconds(30);
  absl::Mutex shared, own;
  const bool never = false;
  bool over = false;
  std::atomic<int64_t> longest = 0;
  std::thread patient([&] {
    absl::MutexLock lock(&own);
    EXPECT_TRUE(AwaitFor(own, absl::Condition(&over), kLong));
  });
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&] {
      for (int n = 0; n < 2000; ++n) {
        absl::MutexLock lock(&shared);
        const absl::Time begin = SteadyNow();
        AwaitFor(shared, absl::Condition(&never), absl::Microseconds(50));
        longest = std::max(longest.load(), absl::ToInt64Milliseconds(SteadyNow() - begin));
      }
    });
  }
  for (std::thread& other : others) other.join();
  EXPECT_LT(absl::Milliseconds(longest.load()), kLong / 3);
  {
    absl::MutexLock lock(&own);
    over = true;
  }
  patient.join();
}

// A mutex that is in use when the time is over keeps nobody else waiting.
TEST(SteadyWaitTest, WaitsForItsMutexBehindItsDeadline) {
  absl::Mutex busy, mutex;
  const bool never = false;
  std::thread waiter([&] {
    absl::MutexLock lock(&busy);
    EXPECT_FALSE(AwaitFor(busy, absl::Condition(&never), kShort));
  });
  absl::SleepFor(kShort / 2);
  {
    absl::MutexLock held(&busy);
    absl::SleepFor(kShort);
    absl::MutexLock lock(&mutex);
    EXPECT_FALSE(AwaitFor(mutex, absl::Condition(&never), kShort));
  }
  waiter.join();
}

TEST(SteadyWaitTest, ManyWaitBesideOneAnother) {
  constexpr int kThreads = 8, kRounds = 300;
  absl::Mutex mutex;
  int turn = 0;
  std::atomic<int> late = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const auto mine = [&] { return turn % kThreads == i; };
      for (int round = 0; round < kRounds; ++round) {
        absl::MutexLock lock(&mutex);
        while (!AwaitFor(mutex, absl::Condition(&mine), absl::Microseconds(round % 50))) ++late;
        ++turn;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(turn, kThreads * kRounds);
  EXPECT_GT(late, 0);
}

TEST(SteadyWaitTest, ANotificationIsKept) {
  SteadyNotification stop;
  EXPECT_FALSE(stop.WaitFor(kShort));
  stop.Notify();
  EXPECT_TRUE(stop.WaitFor(absl::ZeroDuration()));
  EXPECT_TRUE(stop.WaitFor(kForEver));
}

}  // namespace
}  // namespace stagewright
