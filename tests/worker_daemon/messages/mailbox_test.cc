#include "worker_daemon/messages/mailbox.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

TensorPiece Piece(int64_t step, SampleRange range) {
  return {{step, range}, {at::full({1}, range.begin)}};
}

std::vector<SampleRange> Ranges(const std::vector<TensorPiece>& pieces) {
  std::vector<SampleRange> ranges;
  for (const TensorPiece& piece : pieces) ranges.push_back(piece.samples.range);
  return ranges;
}

TEST(Mailbox, GivesOnceWhatLiesWithinTheSamplesByTheFirstOne) {
  Mailbox mailbox;
  mailbox.Put(0, Direction::kActivation, Piece(3, {2, 4}));
  mailbox.Put(0, Direction::kActivation, Piece(3, {0, 2}));
  mailbox.Put(0, Direction::kActivation, Piece(3, {4, 6}));
  EXPECT_EQ(Ranges(mailbox.Take(0, Direction::kActivation, {3, {0, 4}})),
            (std::vector<SampleRange>{{0, 2}, {2, 4}}));
  EXPECT_TRUE(mailbox.Take(0, Direction::kActivation, {3, {0, 4}}).empty());
  EXPECT_EQ(mailbox.Take(0, Direction::kActivation, {3, {4, 8}}).size(), 1);
}

TEST(Mailbox, KeepsChannelsDirectionsAndStepsApart) {
  Mailbox mailbox;
  mailbox.Put(0, Direction::kActivation, Piece(3, {0, 2}));
  EXPECT_TRUE(mailbox.Take(1, Direction::kActivation, {3, {0, 2}}).empty());
  EXPECT_TRUE(mailbox.Take(0, Direction::kGradient, {3, {0, 2}}).empty());
  EXPECT_TRUE(mailbox.Take(0, Direction::kActivation, {2, {0, 2}}).empty());
  EXPECT_TRUE(mailbox.Take(0, Direction::kActivation, {4, {0, 2}}).empty());
  EXPECT_EQ(mailbox.Take(0, Direction::kActivation, {3, {0, 2}}).size(), 1);
}

TEST(Mailbox, IsEmptyAfterClear) {
  Mailbox mailbox;
  mailbox.Put(0, Direction::kGradient, Piece(0, {0, 2}));
  mailbox.Clear();
  EXPECT_TRUE(mailbox.Take(0, Direction::kGradient, {0, {0, 2}}).empty());
}

}  // namespace
}  // namespace stagewright
