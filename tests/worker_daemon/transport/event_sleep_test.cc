#include "worker_daemon/transport/event_sleep.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

#include "common/clock/steady_now.h"

namespace stagewright {
namespace {

constexpr absl::Duration kForever = absl::Minutes(3);
constexpr absl::Duration kShort = absl::Milliseconds(20);

class EventSleepTest : public ::testing::Test {
 protected:
  EventSleepTest() : sleep_(*EventSleep::Create()), fd_(eventfd(0, EFD_NONBLOCK)) {}
  ~EventSleepTest() override { close(fd_); }

  void Tell() const {
    const uint64_t one = 1;
    ASSERT_EQ(write(fd_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }

  // Whether a sleep lasts as long as it may.
  bool Sleeps() {
    const absl::Time start = SteadyNow();
    sleep_->SleepFor(kShort);
    return SteadyNow() - start >= kShort;
  }

  const std::unique_ptr<EventSleep> sleep_;
  const int fd_;
};

TEST_F(EventSleepTest, ASleepEndsWhenSomebodyWakesIt) {
  std::thread other([&] { sleep_->Wake(); });
  sleep_->SleepFor(kForever);
  other.join();
  EXPECT_TRUE(Sleeps());
}

TEST_F(EventSleepTest, WhatComesBeforeASleepEndsIt) {
  sleep_->Wake();
  sleep_->SleepFor(kForever);
  sleep_->Watch(fd_, {});
  Tell();
  sleep_->SleepFor(kForever);
}

TEST_F(EventSleepTest, AnEventEndsOneSleepAlthoughNobodyReadsIt) {
  sleep_->Watch(fd_, {});
  Tell();
  sleep_->SleepFor(kForever);
  EXPECT_TRUE(Sleeps());
  Tell();
  sleep_->SleepFor(kForever);
  EXPECT_TRUE(Sleeps());
}

TEST_F(EventSleepTest, WhatLastsEndsAllSleeps) {
  sleep_->Watch(-1, {fd_});
  Tell();
  sleep_->SleepFor(kForever);
  sleep_->SleepFor(kForever);
}

TEST_F(EventSleepTest, WhatWasClosedMayComeBackAsAnotherFile) {
  const int closed = eventfd(1, EFD_NONBLOCK);
  sleep_->Watch(fd_, {closed});
  sleep_->SleepFor(kForever);
  close(closed);
  EXPECT_TRUE(Sleeps());
  sleep_->Watch(fd_, {});
  const int other = eventfd(1, EFD_NONBLOCK);
  sleep_->Watch(fd_, {other});
  sleep_->SleepFor(kForever);
  close(other);
}

}  // namespace
}  // namespace stagewright
