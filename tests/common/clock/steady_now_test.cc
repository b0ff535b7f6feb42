#include "common/clock/steady_now.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace stagewright {
namespace {

TEST(SteadyNowTest, GoesOnAndIsTheClocksWhereNobodySetsThat) {
  const absl::Time begin = SteadyNow();
  absl::SleepFor(absl::Milliseconds(5));
  EXPECT_GE(SteadyNow() - begin, absl::Milliseconds(5));
  EXPECT_LT(absl::AbsDuration(SteadyNow() - absl::Now()), absl::Seconds(1));
  EXPECT_EQ(OnTheClock(begin), begin);
  EXPECT_EQ(OnTheClock(absl::InfinitePast()), absl::InfinitePast());
}

}  // namespace
}  // namespace stagewright
