#include "planner_service/growth/growth_room.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(GrowthRoomTest, TakesNoMoreThanItWantsNorThanIsThere) {
  EXPECT_EQ(RoomToGrow({.has = 2, .wants = 4, .free = 1}).more, 1);
  EXPECT_EQ(RoomToGrow({.has = 2, .wants = 4, .free = 9}).more, 2);
  EXPECT_EQ(RoomToGrow({.has = 2, .wants = 4, .free = 9, .quota_left = 1}).more, 1);
  EXPECT_EQ(RoomToGrow({.has = 2, .wants = 4, .free = 9}).why, "");
}

TEST(GrowthRoomTest, SaysWhyThereIsNone) {
  EXPECT_EQ(RoomToGrow({.has = 2, .wants = 3}).why, "runs on 2 of 3 devices: no other is free");
  EXPECT_EQ(RoomToGrow({.has = 2, .wants = 3, .free = 1, .quota_left = 0}).why,
            "runs on 2 of 3 devices: its quota is used up");
  EXPECT_EQ(RoomToGrow({.has = 2, .wants = 3, .free = 1, .quota_left = -2}).more, 0);
}

TEST(GrowthRoomTest, SaysWhichDevicesAJobHasInsteadOfWhich) {
  const std::vector<std::string> two = {"a/cpu0", "b/cpu0"};
  EXPECT_EQ(DevicesInstead({"a/cpu0", "b/cpu0", "c/cpu0"}, two), "3 devices instead of 2");
  EXPECT_EQ(DevicesInstead({"c/cpu0"}, two), "1 device instead of 2");
  EXPECT_EQ(DevicesInstead({"c/cpu0", "a/cpu0"}, two), "c/cpu0 instead of b/cpu0");
  EXPECT_EQ(DevicesInstead({"d/cpu0", "c/cpu0"}, two), "d/cpu0, c/cpu0 instead of a/cpu0, b/cpu0");
  EXPECT_EQ(DevicesInstead({"b/cpu0", "a/cpu0"}, two), "");
}

TEST(GrowthRoomTest, JobsThatWaitComeFirst) {
  const GrowthRoom room = RoomToGrow({.has = 2, .wants = 3, .free = 1, .waiting = 1});
  EXPECT_EQ(room.more, 0);
  EXPECT_EQ(room.why,
            "runs on 2 of 3 devices: 1 is free, but 1 job waits for devices and comes first");
  EXPECT_EQ(RoomToGrow({.has = 2, .wants = 9, .free = 2, .waiting = 2}).why,
            "runs on 2 of 9 devices: 2 are free, but 2 jobs wait for devices and come first");
}

}  // namespace
}  // namespace stagewright
