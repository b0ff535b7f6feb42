#include "worker_daemon/transport/arranged/mover_rounds.h"

#include "gtest/gtest.h"

namespace stagewright {
namespace {

// Remembers what it was given, and ends what it is told to.
class FakeMover : public DeviceMover {
 public:
  absl::StatusOr<std::string> MakeNote() override { return std::string("note"); }
  absl::Status Connect(const MoverGroup&, const std::string&, absl::Time) override {
    return absl::OkStatus();
  }
  absl::Status OpenCollectives(const std::vector<std::vector<int>>&, absl::Time) override {
    return absl::OkStatus();
  }
  std::shared_ptr<void> Mark() override { return nullptr; }
  bool Passed(const std::shared_ptr<void>&) override { return true; }
  absl::StatusOr<uint64_t> Start(const std::vector<MoverPart>& parts) override {
    if (!broken.ok()) return broken;
    started.push_back({});
    for (const MoverPart& part : parts) started.back().push_back(part.peer);
    return started.size();
  }
  absl::StatusOr<std::vector<uint64_t>> Ended() override {
    ++asked;
    if (!broken.ok()) return broken;
    return std::exchange(ended, {});
  }
  void InterruptAt(absl::Time) override {}
  void Stop() override {}

  absl::Status broken;
  std::vector<std::vector<int>> started;  // The peers of each round.
  std::vector<uint64_t> ended;
  int asked = 0;
};

MoverPart Part(int peer, size_t bytes = 1) { return {.peer = peer, .bytes = bytes}; }

TEST(MoverRoundsTest, HandsOutTheOperationsOfEachEndedRound) {
  FakeMover mover;
  MoverRounds rounds(&mover);
  EXPECT_TRUE(rounds.idle());
  EXPECT_EQ(*rounds.TakeEnded(), std::vector<uint64_t>());
  EXPECT_EQ(mover.asked, 0);  // Nothing is under way.
  rounds.Add(10, Part(1));
  rounds.Add(11, Part(2));
  EXPECT_TRUE(rounds.idle());
  EXPECT_EQ(rounds.Start(), absl::OkStatus());
  rounds.Add(12, Part(3));
  EXPECT_EQ(rounds.Start(), absl::OkStatus());
  EXPECT_EQ(mover.started, (std::vector<std::vector<int>>{{1, 2}, {3}}));
  EXPECT_EQ(*rounds.TakeEnded(), std::vector<uint64_t>());
  mover.ended = {1};
  EXPECT_EQ(*rounds.TakeEnded(), (std::vector<uint64_t>{10, 11}));
  EXPECT_FALSE(rounds.idle());
  mover.ended = {2};
  EXPECT_EQ(*rounds.TakeEnded(), (std::vector<uint64_t>{12}));
  EXPECT_TRUE(rounds.idle());
}

TEST(MoverRoundsTest, TheMoverGetsNoEmptyParts) {
  FakeMover mover;
  MoverRounds rounds(&mover);
  rounds.Add(10, Part(1, 0));
  rounds.Add(11, Part(2));
  EXPECT_EQ(rounds.TakeEmpty(), (std::vector<uint64_t>{10}));
  EXPECT_EQ(rounds.TakeEmpty(), std::vector<uint64_t>());
  EXPECT_EQ(rounds.Start(), absl::OkStatus());
  rounds.Add(12, Part(3, 0));
  EXPECT_EQ(rounds.TakeEmpty(), (std::vector<uint64_t>{12}));
  EXPECT_EQ(rounds.Start(), absl::OkStatus());
  EXPECT_EQ(mover.started, (std::vector<std::vector<int>>{{2}}));
}

TEST(MoverRoundsTest, PassesOnThatTheMoverBroke) {
  FakeMover mover;
  MoverRounds rounds(&mover);
  rounds.Add(10, Part(1));
  EXPECT_EQ(rounds.Start(), absl::OkStatus());
  mover.broken = absl::InternalError("the cable broke");
  EXPECT_EQ(rounds.TakeEnded().status(), mover.broken);
  rounds.Add(11, Part(1));
  EXPECT_EQ(rounds.Start(), mover.broken);
  EXPECT_FALSE(rounds.idle());
  rounds.Clear();
  EXPECT_TRUE(rounds.idle());
}

}  // namespace
}  // namespace stagewright
