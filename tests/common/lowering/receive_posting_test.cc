#include "common/lowering/receive_posting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <string_view>

namespace stagewright {
namespace {

using ::testing::ElementsAre;

// "F0 B0 .1 f2": forward and backward pass of work 0, another pass of work 1, a forward pass of
// another stage.
std::vector<LanePass> Lane(std::string_view text) {
  std::vector<LanePass> lane;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(text[i + 1])) == 0) continue;
    const auto letter = static_cast<unsigned char>(text[i]);
    const LanePass::Kind kind = std::toupper(letter) == 'F'   ? LanePass::Kind::kForward
                                : std::toupper(letter) == 'B' ? LanePass::Kind::kGradients
                                                              : LanePass::Kind::kOther;
    lane.push_back({kind, std::islower(letter) == 0 ? 0 : 1, text[i + 1] - '0'});
  }
  return lane;
}

TEST(ReceivePosting, IsWhenThePassBeforeOfTheSameDirectionStarts) {
  EXPECT_THAT(ReceivePosting().PostAfter(Lane("F0 F1 F2 F3 F4")), ElementsAre(-1, -1, 0, 1, 2));
  EXPECT_THAT(ReceivePosting().PostAfter(Lane("F0 F1 B0 F2 B1 F3 B2")),
              ElementsAre(-1, -1, 0, 0, 1, 2, 3));
}

TEST(ReceivePosting, DoesNotWaitForPassesOfOtherStages) {
  EXPECT_THAT(ReceivePosting().PostAfter(Lane("F0 f5 F1 f6 F2 f7")),
              ElementsAre(-1, -1, -1, 0, 1, 2));
  EXPECT_THAT(ReceivePosting().PostAfter(Lane("F0 f5 b5 F1 f6 b6 B0 B1")),
              ElementsAre(-1, -1, 1, -1, 0, 4, 0, 5));
}

TEST(ReceivePosting, OfAGradientIsNotBeforeTheForwardPassThatItAnswers) {
  EXPECT_THAT(ReceivePosting().PostAfter(Lane("F0 B0 F1 B1")), ElementsAre(-1, 0, -1, 2));
}

TEST(ReceivePosting, IsAtMostSoManyPassesAhead) {
  const std::vector<LanePass> lane = Lane("F0 B9 B8 B7 B6 B5 F1");
  EXPECT_EQ(ReceivePosting{1}.PostAfter(lane).back(), 5);
  EXPECT_EQ(ReceivePosting{2}.PostAfter(lane).back(), 4);
  EXPECT_EQ(ReceivePosting{4}.PostAfter(lane).back(), 2);
  EXPECT_EQ(ReceivePosting{6}.PostAfter(lane).back(), 0);
  EXPECT_EQ(ReceivePosting{7}.PostAfter(lane).back(), -1);
}

TEST(ReceivePosting, PassesWithoutMessagesCountAndReceiveNothing) {
  EXPECT_THAT(ReceivePosting{4}.PostAfter(Lane("F0 F1 F2 F3 .0 .1 .2 B0")),
              ElementsAre(-1, -1, 0, 1, -1, -1, -1, 3));
}

TEST(ReceivePosting, OnePassAheadIsRightBeforeTheReader) {
  EXPECT_THAT(ReceivePosting{1}.PostAfter(Lane("F0 F1 B0 F2 .1 B1")),
              ElementsAre(-1, 0, 1, 2, -1, 4));
}

}  // namespace
}  // namespace stagewright
