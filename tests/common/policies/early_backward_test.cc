#include "common/policies/early_backward.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(EarlyBackward, DapplesWarmUpDepths) {
  // Figure 3 and section 4: PA keeps one micro-batch per stage that follows, PB nearly twice as
  // many.
  EXPECT_EQ(PaInFlight(4, 100), 4);
  EXPECT_EQ(PaInFlight(1, 100), 1);
  EXPECT_EQ(PbInFlight(4, 100), 7);
  EXPECT_EQ(PbInFlight(1, 100), 1);
  EXPECT_EQ(PaInFlight(4, 3), 3);
  EXPECT_EQ(PbInFlight(4, 6), 6);
}

}  // namespace
}  // namespace stagewright
