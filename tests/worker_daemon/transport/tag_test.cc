#include "worker_daemon/transport/tag.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(Tag, IsNamedByChannelTrafficAndNumber) {
  EXPECT_EQ(ToString(Tag{3, Traffic::kGradient, 7}), "channel 3 gradient 7");
  EXPECT_EQ(ToString(Tag{0, Traffic::kArrangement, 0}), "channel 0 arrangement 0");
}

TEST(Tag, IsOrderedByChannelFirst) {
  EXPECT_LT((Tag{1, Traffic::kState, 9}), (Tag{2, Traffic::kActivation, 0}));
  EXPECT_EQ((Tag{1, Traffic::kState, 9}), (Tag{1, Traffic::kState, 9}));
}

}  // namespace
}  // namespace stagewright
