#include "planner_service/registry/quarantine.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace stagewright {
namespace {

class QuarantineTest : public ::testing::Test {
 protected:
  void Fail(int times) {
    for (int i = 0; i < times; ++i) quarantine_.NoteFailure("w/cpu0", "it was lost", now_);
  }
  bool Held() { return quarantine_.Find("w/cpu0") != nullptr; }
  void Pass(absl::Duration time) { quarantine_.Expire(now_ += time); }

  Quarantine quarantine_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
};

TEST_F(QuarantineTest, AFewFailuresInAShortTimeKeepADeviceForAWhile) {
  Fail(kFailuresToQuarantine - 1);
  EXPECT_FALSE(Held());
  Fail(1);
  ASSERT_TRUE(Held());
  EXPECT_EQ(quarantine_.Find("w/cpu0")->why, "it was lost");
  EXPECT_EQ(quarantine_.Find("w/cpu0")->until, now_ + kQuarantineLasts);
  EXPECT_EQ(quarantine_.Find("w/cpu1"), nullptr);
  Pass(kQuarantineLasts - absl::Seconds(1));
  EXPECT_TRUE(Held());
  Pass(absl::Seconds(1));
  EXPECT_FALSE(Held());
  Fail(kFailuresToQuarantine - 1);  // It has paid for the others.
  EXPECT_FALSE(Held());
}

TEST_F(QuarantineTest, FailuresThatLieFarApartDoNot) {
  for (int i = 0; i < 10; ++i) {
    Fail(1);
    Pass(kFailuresWithin / (kFailuresToQuarantine - 1) + absl::Seconds(1));
    EXPECT_FALSE(Held());
  }
}

TEST_F(QuarantineTest, FewerFailuresMayBeEnough) {
  Fail(kGapsToQuarantine - 1);
  quarantine_.NoteFailure("w/cpu0", "peers do not reach it", now_, kGapsToQuarantine);
  EXPECT_TRUE(Held());
}

TEST_F(QuarantineTest, EachOfADeviceIsTwiceAsLongAsTheOneBefore) {
  absl::Duration lasts = kQuarantineLasts;
  for (int i = 0; i < 70; ++i) {
    Fail(kFailuresToQuarantine);
    ASSERT_TRUE(Held());
    EXPECT_EQ(quarantine_.Find("w/cpu0")->until, now_ + lasts);
    Pass(lasts - absl::Seconds(1));
    EXPECT_TRUE(Held());
    Pass(absl::Minutes(1));  // It is taken again, and fails again.
    EXPECT_FALSE(Held());
    lasts = std::min(2 * lasts, kLongestQuarantine);
  }
  EXPECT_EQ(lasts, kLongestQuarantine);
}

TEST_F(QuarantineTest, ADeviceThatBehavesForLongIsAsAnyOther) {
  const auto lasts = [this] {
    Fail(kFailuresToQuarantine);
    const absl::Duration time = quarantine_.Find("w/cpu0")->until - now_;
    Pass(time);
    return time;
  };
  EXPECT_EQ(lasts(), kQuarantineLasts);
  Pass(kForgottenAfter / 2);
  Fail(1);  // Since then, and too little to keep it.
  Pass(kForgottenAfter);
  EXPECT_FALSE(Held());
  EXPECT_EQ(lasts(), 2 * kQuarantineLasts);
  Pass(kForgottenAfter + absl::Seconds(1));
  EXPECT_EQ(lasts(), kQuarantineLasts);
  now_ += kForgottenAfter + absl::Seconds(1);  // Nobody has looked since.
  EXPECT_EQ(lasts(), kQuarantineLasts);
}

TEST_F(QuarantineTest, AnOperatorMayForgive) {
  for (int i = 0; i < 2; ++i) {
    Fail(kFailuresToQuarantine);
    EXPECT_EQ(quarantine_.Find("w/cpu0")->until, now_ + kQuarantineLasts);
    quarantine_.Forgive("w/cpu0");
    EXPECT_FALSE(Held());
  }
}

}  // namespace
}  // namespace stagewright
