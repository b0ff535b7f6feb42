#include "planner_service/growth/growth_pauses.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace stagewright {
namespace {

const absl::Time kStart = absl::UnixEpoch() + absl::Hours(1000);
constexpr absl::Duration kPause = absl::Seconds(10);

TEST(GrowthPausesTest, ARunIsLeftAloneAtFirst) {
  GrowthPauses pauses;
  EXPECT_TRUE(pauses.MayLook({"c"}, kStart));
  pauses.NoteRun(kPause, kStart);
  EXPECT_FALSE(pauses.MayLook({"c"}, kStart + absl::Seconds(9)));
  EXPECT_TRUE(pauses.MayLook({"c"}, kStart + kPause));
}

TEST(GrowthPausesTest, WaitsLongerAfterEachGrowthUntilThatIsLongAgo) {
  GrowthPauses pauses;
  absl::Duration expected = kPause;
  absl::Time now = kStart;
  for (int i = 0; i < 20; ++i) {
    pauses.NoteRun(kPause, now);
    EXPECT_FALSE(pauses.MayLook({"c"}, now + expected - absl::Seconds(1)));
    EXPECT_TRUE(pauses.MayLook({"c"}, now + expected));
    now += expected;
    pauses.NoteGrowth(now);
    expected = std::min(2 * expected, kLongestGrowthPause);
  }
  now += kGrowthsForgottenAfter + absl::Seconds(1);
  pauses.NoteRun(kPause, now);
  EXPECT_TRUE(pauses.MayLook({"c"}, now + kPause));
}

TEST(GrowthPausesTest, TheSameDevicesAreNotSearchedForAgainAndAgain) {
  GrowthPauses pauses;
  pauses.NoteVain({"d", "c"}, kPause, kStart);
  EXPECT_FALSE(pauses.MayLook({"e"}, kStart + absl::Seconds(9)));
  const absl::Time later = kStart + kPause;
  EXPECT_FALSE(pauses.MayLook({"c"}, later));
  EXPECT_FALSE(pauses.MayLook({"c", "d"}, later));
  EXPECT_TRUE(pauses.MayLook({"c", "e"}, later));
  EXPECT_TRUE(pauses.MayLook({"c"}, kStart + kSameDevicesAgain));
}

TEST(GrowthPausesTest, AnotherRunIsLookedAtAnew) {
  GrowthPauses pauses;
  pauses.NoteVain({"c"}, kPause, kStart);
  pauses.NoteRun(kPause, kStart);
  EXPECT_TRUE(pauses.MayLook({"c"}, kStart + kPause));
}

}  // namespace
}  // namespace stagewright
