#include "worker_daemon/transport/arranged/arranged_life.h"

#include "gtest/gtest.h"

namespace stagewright {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000);
const absl::Status kLost = absl::UnavailableError("lost");
const absl::Status kBroken = absl::InternalError("broken");
const absl::Status kAborted = absl::AbortedError("enough");

ArrangedLife Joined() {
  ArrangedLife life;
  life.Join();
  life.SetJoined();
  return life;
}

TEST(ArrangedLifeTest, Joins) {
  ArrangedLife life;
  EXPECT_FALSE(life.joining_or_joined());
  EXPECT_FALSE(life.past_joining());
  life.Join();
  EXPECT_TRUE(life.joining_or_joined());
  EXPECT_FALSE(life.past_joining());
  life.SetJoined();
  EXPECT_TRUE(life.joining_or_joined());
  EXPECT_TRUE(life.past_joining());
  EXPECT_EQ(life.failure(), absl::OkStatus());
  EXPECT_FALSE(life.failing() || life.failed() || life.MustFail(kNow, true));
}

TEST(ArrangedLifeTest, WithoutAPeerItDrainsUntilItIsIdleOrTimeIsUp) {
  ArrangedLife life = Joined();
  life.Lose(kLost, kNow);
  life.Lose(kBroken, absl::InfiniteFuture());  // The first loss counts.
  EXPECT_EQ(life.failure(), kLost);
  EXPECT_TRUE(life.failing());
  EXPECT_FALSE(life.joining_or_joined());
  const absl::Time before = kNow - absl::Milliseconds(1);
  EXPECT_TRUE(life.Drains(before));
  EXPECT_FALSE(life.MustFail(before, false));
  EXPECT_TRUE(life.MustFail(before, true));
  EXPECT_FALSE(life.Drains(kNow));
  EXPECT_TRUE(life.MustFail(kNow, false));
  life.SetFailed();
  EXPECT_TRUE(life.failed());
  EXPECT_FALSE(life.failing() || life.aborted() || life.MustFail(kNow, true));
}

TEST(ArrangedLifeTest, ABrokenMoverFailsAllAtOnce) {
  ArrangedLife life = Joined();
  life.Break(kBroken);
  EXPECT_EQ(life.failure(), kBroken);
  EXPECT_TRUE(life.failing());
  EXPECT_TRUE(life.MustFail(kNow, false));
  life.Lose(kLost, kNow);
  EXPECT_EQ(life.failure(), kBroken);
  EXPECT_FALSE(life.Drains(absl::InfinitePast()));
}

TEST(ArrangedLifeTest, AMoverThatBreaksWhileItDrainsEndsThat) {
  ArrangedLife life = Joined();
  life.Lose(kLost, absl::InfiniteFuture());
  life.Break(kBroken);
  EXPECT_EQ(life.failure(), kLost);
  EXPECT_TRUE(life.MustFail(kNow, false));
}

TEST(ArrangedLifeTest, OnlyTheFirstAbortCounts) {
  ArrangedLife life = Joined();
  EXPECT_TRUE(life.Abort(kAborted));
  EXPECT_FALSE(life.Abort(kLost));
  EXPECT_EQ(life.failure(), kAborted);
  EXPECT_TRUE(life.MustFail(kNow, false));
  life.Break(kBroken);
  EXPECT_EQ(life.failure(), kAborted);
  EXPECT_FALSE(life.aborted());
  life.SetFailed();
  EXPECT_TRUE(life.aborted());
  EXPECT_TRUE(life.failed());
  EXPECT_FALSE(life.Abort(kLost));
  life.Stop();
  EXPECT_TRUE(life.stopped());
  EXPECT_TRUE(life.failed());
  EXPECT_FALSE(life.Abort(kLost));
}

TEST(ArrangedLifeTest, AnAbortReplacesTheReasonOfALoss) {
  ArrangedLife drains = Joined();
  drains.Lose(kLost, absl::InfiniteFuture());
  EXPECT_TRUE(drains.Abort(kAborted));
  EXPECT_EQ(drains.failure(), kAborted);
  EXPECT_TRUE(drains.MustFail(kNow, false));

  ArrangedLife failed = Joined();
  failed.Break(kLost);
  failed.SetFailed();
  EXPECT_TRUE(failed.Abort(kAborted));
  EXPECT_EQ(failed.failure(), kAborted);
  EXPECT_TRUE(failed.aborted());  // There is nothing left to fail.
  EXPECT_FALSE(failed.failing());
}

}  // namespace
}  // namespace stagewright
