#include "worker_daemon/transport/ucx/ucx_tag.h"

#include "gtest/gtest.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {
namespace {

TEST(UcxTagTest, LaysOutItsFields) {
  EXPECT_EQ(PackUcxTag({.generation = 0x12,
                        .sender = 0x345,
                        .traffic = 0x6,
                        .channel = 0x789ab,
                        .sequence = 0xcdef0}),
            0x123456789abcdef0u);
}

TEST(UcxTagTest, RoundTripsTheLargestOfEachField) {
  const UcxTag most = {.generation = 255,
                       .sender = Transport::kMaxDevice,
                       .traffic = kUcxControlTraffic,
                       .channel = Tag::kMaxChannel,
                       .sequence = (1u << 20) - 1};
  EXPECT_EQ(PackUcxTag(most), ~uint64_t{0});
  EXPECT_EQ(UnpackUcxTag(PackUcxTag(most)), most);
}

TEST(UcxTagTest, TakesTheLowBitsOfGenerationAndSequence) {
  EXPECT_EQ(PackUcxTag({.generation = 0x103, .sequence = (7u << 20) + 5}),
            PackUcxTag({.generation = 3, .sequence = 5}));
}

TEST(UcxTagTest, NoBitsAreTakenForThoseOfControlMessagesWithoutTheirTraffic) {
  EXPECT_NE(UnpackUcxTag(WithoutControlTraffic(~uint64_t{0})).traffic, kUcxControlTraffic);
  const uint64_t data = PackUcxTag({1, 2, static_cast<uint32_t>(Traffic::kArrangement), 3, 4});
  EXPECT_EQ(WithoutControlTraffic(data), data);
}

TEST(UcxTagTest, TheMaskFindsControlMessagesOfAGeneration) {
  const auto masked = [](const UcxTag& tag) { return PackUcxTag(tag) & UcxControlMask(); };
  const UcxTag any = {.generation = 7, .traffic = kUcxControlTraffic};
  EXPECT_EQ(masked({.generation = 7, .sender = 9, .traffic = kUcxControlTraffic, .channel = 3}),
            PackUcxTag(any));
  EXPECT_NE(masked({.generation = 8, .traffic = kUcxControlTraffic}), PackUcxTag(any));
  EXPECT_NE(masked({.generation = 7, .traffic = static_cast<uint32_t>(Traffic::kArrangement)}),
            PackUcxTag(any));
}

}  // namespace
}  // namespace stagewright
