#include "planner_service/runs/checkpoint_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace stagewright {
namespace {

constexpr Nanos kStep = 100 * kMillisecond;

class CheckpointProgressTest : public ::testing::Test {
 protected:
  std::optional<int64_t> Announce(int64_t step, int minutes, int64_t total = 0) {
    return progress_.Announce(step, kStep, total, begun_ + absl::Minutes(minutes));
  }
  std::optional<WrittenCheckpoint> Add(int32_t device, int64_t step, const char* error = "",
                                       bool skipped = false, bool late = false) {
    return progress_.Add({device, step, {{"file", 8, 1}}, error, skipped, late}, begun_);
  }

  const absl::Time begun_ = absl::UnixEpoch();
  CheckpointProgress progress_{2, absl::Minutes(5), begun_};
};

TEST_F(CheckpointProgressTest, IsAnnouncedASecondAheadWhenItIsTime) {
  EXPECT_FALSE(Announce(10, 4).has_value());
  EXPECT_EQ(Announce(10, 5), 10 + 2 + 10);
  EXPECT_FALSE(Announce(11, 6).has_value());  // One at a time.
  EXPECT_FALSE(Add(0, 22).has_value());
  EXPECT_TRUE(Add(1, 22).has_value());
  EXPECT_EQ(Announce(30, 5), 42);
}

TEST_F(CheckpointProgressTest, TheEndOfTheJobComesFirst) {
  EXPECT_FALSE(Announce(10, 5, 22).has_value());
  EXPECT_EQ(Announce(10, 5, 23), 22);
}

TEST_F(CheckpointProgressTest, WhatCameTooLateIsAnnouncedEarlier) {
  EXPECT_EQ(Announce(10, 5), 22);
  EXPECT_FALSE(Add(0, 22, "too late", /*skipped=*/true, /*late=*/true).has_value());
  const auto written = Add(1, 22);
  ASSERT_TRUE(written.has_value());
  EXPECT_EQ(written->error, "too late");
  EXPECT_EQ(Announce(30, 5), 30 + 24);  // At once: none was written.
}

TEST_F(CheckpointProgressTest, WhatStorageWasTooSlowForIsAnnouncedNoEarlier) {
  EXPECT_EQ(progress_.AnnounceHold(10, kStep, 0, nullptr), 22);
  EXPECT_FALSE(Add(0, 22, "still being written", /*skipped=*/true).has_value());
  EXPECT_TRUE(Add(1, 22).has_value());
  progress_.EndHold();
  EXPECT_EQ(progress_.AnnounceHold(10, kStep, 0, nullptr), 23);  // Not the one that failed.
  progress_.EndHold();
  EXPECT_EQ(progress_.AnnounceHold(30, kStep, 0, nullptr), 42);
}

TEST_F(CheckpointProgressTest, AStepToWaitAfterIsDueOnlyWhereAllAre) {
  for (const bool halfway : {false, true}) {
    for (int64_t every = 1; every < 6; ++every) {
      const CheckpointPolicy policy{.every_steps = every, .halfway = halfway};
      for (int64_t step = 10; step < 20; ++step) {
        const auto hold = progress_.AnnounceHold(step, kStep, 0, &policy);
        ASSERT_TRUE(hold.has_value());
        EXPECT_LE(*hold, step + 12 + 2);
        EXPECT_EQ(policy.IsDue(*hold), every <= (halfway ? 2 : 1)) << every << " " << *hold;
      }
    }
  }
}

TEST_F(CheckpointProgressTest, HoldsTheFilesOfAllDevicesAndForgetsOlderOnes) {
  EXPECT_FALSE(Add(0, 4).has_value());
  EXPECT_FALSE(Add(0, 6).has_value());
  const auto written = Add(1, 6);
  ASSERT_TRUE(written.has_value());
  EXPECT_EQ(written->step, 6);
  EXPECT_EQ(written->files.size(), 2u);
  EXPECT_EQ(written->error, "");
  EXPECT_FALSE(Add(1, 4).has_value());
}

TEST_F(CheckpointProgressTest, OneThatIsSkippedLeavesTheOneThatIsBeingWritten) {
  EXPECT_FALSE(Add(0, 3).has_value());
  EXPECT_FALSE(progress_.IsSkipped(6));
  EXPECT_FALSE(Add(0, 6, "still being written", /*skipped=*/true).has_value());
  EXPECT_TRUE(progress_.IsSkipped(6));
  EXPECT_EQ(Add(1, 6, "still being written", /*skipped=*/true)->step, 6);
  for (const int32_t device : {0, 1})
    EXPECT_FALSE(Add(device, 6, "still being written", /*skipped=*/true).has_value());
  EXPECT_TRUE(progress_.IsSkipped(6));
  EXPECT_FALSE(progress_.IsSkipped(3));
  const auto written = Add(1, 3);
  ASSERT_TRUE(written.has_value());
  EXPECT_EQ(written->error, "");
  EXPECT_EQ(written->files.size(), 2u);
}

TEST_F(CheckpointProgressTest, WhatIsToldAgainChangesNothing) {
  EXPECT_FALSE(Add(0, 4).has_value());
  EXPECT_FALSE(Add(0, 4).has_value());
  const auto written = Add(1, 4);
  ASSERT_TRUE(written.has_value());
  EXPECT_EQ(written->files.size(), 2u);
  for (const int32_t device : {0, 1}) EXPECT_FALSE(Add(device, 4).has_value());
}

TEST_F(CheckpointProgressTest, AWholeCheckpointWaitsForItsManifest) {
  Add(0, 4);
  EXPECT_FALSE(progress_.without_manifest().has_value());
  Add(1, 4);
  ASSERT_TRUE(progress_.without_manifest().has_value());
  progress_.EndManifest(3);  // An older one's.
  EXPECT_EQ(progress_.without_manifest()->step, 4);
  progress_.EndManifest(4);
  EXPECT_FALSE(progress_.without_manifest().has_value());
  Add(0, 6, "no space left");
  EXPECT_TRUE(Add(1, 6).has_value());
  EXPECT_FALSE(progress_.without_manifest().has_value());
}

TEST(CheckpointProgress, NoneIsDueByNoClock) {
  CheckpointProgress progress(1, absl::ZeroDuration(), absl::UnixEpoch());
  EXPECT_FALSE(progress.Announce(10, kStep, 0, absl::Now()).has_value());
}

}  // namespace
}  // namespace stagewright
