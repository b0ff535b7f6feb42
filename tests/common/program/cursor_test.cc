#include "common/program/cursor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ProgramAction Make(const std::string& text, std::vector<int32_t> after = {}, Bytes acquire = 0,
                   Bytes release = 0) {
  return {*ParseAction(text), std::move(after), acquire, release};
}

TEST(LaneOf, TransfersHaveALanePerChannelAndKind) {
  const auto lane = [](const std::string& text) { return LaneOf(*ParseAction(text)); };
  EXPECT_EQ(lane("F0[0,1)"), lane("B3[0,1)"));
  EXPECT_EQ(lane("F0[0,1)"), lane("OS2"));
  EXPECT_EQ(lane("SA0[0,1)@4"), lane("SA0[1,2)@4"));
  EXPECT_NE(lane("SA0[0,1)@4"), lane("SA0[0,1)@5"));
  EXPECT_NE(lane("SA0[0,1)@4"), lane("RG0[0,1)@4"));
  EXPECT_EQ(lane("AR0@0"), lane("AR1@5"));
  EXPECT_NE(lane("AR0@0"), lane("F0[0,1)"));
}

TEST(Cursor, RunsLanesInOrderAndLanesApart) {
  const std::vector<ProgramAction> section = {Make("F0[0,1)"),    Make("SA0[0,1)@0", {0}),
                                              Make("F0[1,2)"),    Make("SA0[1,2)@0", {2}),
                                              Make("RG0[0,1)@0"), Make("B0[0,1)", {4})};
  Cursor cursor(section);
  EXPECT_THAT(cursor.Ready(), ElementsAre(0, 4));
  cursor.Start(0);
  EXPECT_THAT(cursor.Ready(), ElementsAre(4));
  EXPECT_THAT(cursor.Finish(0), ElementsAre(1, 2));
  cursor.Start(2);
  EXPECT_THAT(cursor.Finish(2), IsEmpty());  // The lane of the sends is not free.
  cursor.Start(4);
  cursor.Start(1);
  EXPECT_THAT(cursor.Finish(1), ElementsAre(3));
  EXPECT_THAT(cursor.Finish(4), ElementsAre(5));
  EXPECT_THAT(cursor.Ready(), ElementsAre(3, 5));
  EXPECT_TRUE(cursor.finished(4));
  EXPECT_FALSE(cursor.finished(5));
  cursor.Start(5);
  cursor.Start(3);
  cursor.Finish(5);
  EXPECT_FALSE(cursor.done());
  cursor.Finish(3);
  EXPECT_TRUE(cursor.done());
  EXPECT_EQ(cursor.finished(), 6);
}

TEST(Cursor, WaitsForLaterActionsOfTheListToo) {
  const std::vector<ProgramAction> section = {Make("RA0[0,1)@0", {1}), Make("F1[0,1)"),
                                              Make("F0[0,1)", {0})};
  Cursor cursor(section);
  EXPECT_THAT(cursor.Ready(), ElementsAre(1));
  cursor.Start(1);
  EXPECT_THAT(cursor.Finish(1), ElementsAre(0));
}

TEST(Cursor, AccountsForMemoryAtStartAndFinish) {
  const std::vector<ProgramAction> section = {Make("F0[0,1)", {}, 100, 30),
                                              Make("B0[0,1)", {}, 10, 80)};
  Cursor cursor(section);
  cursor.Start(0);
  EXPECT_EQ(cursor.memory(), 100);
  cursor.Finish(0);
  EXPECT_EQ(cursor.memory(), 70);
  cursor.Start(1);
  EXPECT_EQ(cursor.memory(), 80);
  cursor.Finish(1);
  EXPECT_EQ(cursor.memory(), 0);
  EXPECT_EQ(cursor.peak_memory(), 100);
}

// Two sums wait for marks of a pass, a third for its end; the second comes behind the first.
TEST(Cursor, MarksLetSumsStartWithinAPass) {
  std::vector<ProgramAction> section = {Make("B0[0,1)"), Make("AR0@0"), Make("AR0@1"),
                                        Make("AR0@2", {0})};
  section[1].after_marks = {{0, 5}};
  section[2].after_marks = {{0, 3}};
  Cursor cursor(section);
  EXPECT_THAT(cursor.Ready(), ElementsAre(0));
  cursor.Start(0);
  EXPECT_THAT(cursor.Reach(0, 3), IsEmpty()) << "its lane is not free";
  EXPECT_THAT(cursor.Reach(0, 7), IsEmpty()) << "nobody waits for it";
  EXPECT_THAT(cursor.Reach(0, 5), ElementsAre(1));
  EXPECT_THAT(cursor.Reach(0, 5), IsEmpty()) << "reached before";
  cursor.Start(1);
  EXPECT_THAT(cursor.Finish(1), ElementsAre(2));
  cursor.Start(2);
  EXPECT_THAT(cursor.Finish(2), IsEmpty());
  EXPECT_THAT(cursor.Finish(0), ElementsAre(3));
}

TEST(Cursor, APassReachesItsMarksByItsEnd) {
  std::vector<ProgramAction> section = {Make("B0[0,1)"), Make("AR0@0"), Make("AR0@1")};
  section[1].after_marks = {{0, 5}};
  section[2].after_marks = {{0, 3}, {0, 5}};
  Cursor cursor(section);
  cursor.Start(0);
  EXPECT_THAT(cursor.Reach(0, 5), ElementsAre(1));
  cursor.Start(1);
  EXPECT_THAT(cursor.Finish(1), IsEmpty()) << "the other mark is missing";
  EXPECT_THAT(cursor.Finish(0), ElementsAre(2));
}

TEST(Cursor, AnEmptySectionIsDone) {
  const std::vector<ProgramAction> section;
  const Cursor cursor(section);
  EXPECT_TRUE(cursor.done());
  EXPECT_THAT(cursor.Ready(), IsEmpty());
}

TEST(CursorDeathTest, RejectsActionsThatAreNotReady) {
  const std::vector<ProgramAction> section = {Make("F0[0,1)"), Make("F0[1,2)")};
  Cursor cursor(section);
  EXPECT_DEATH(cursor.Start(1), "CHECK failed");
  EXPECT_DEATH(cursor.Finish(0), "CHECK failed");
  EXPECT_DEATH(cursor.Start(2), "CHECK failed");
}

// Every action waits for its own receive; all receives are ready at once, each in its lane.
TEST(Cursor, CopesWithLongSections) {
  std::vector<ProgramAction> section;
  constexpr int32_t kActions = 200'000;
  for (int32_t i = 0; i < kActions; ++i) {
    ProgramAction receive = Make("RA0[0,1)@0");
    receive.action.channel = i % 8;
    section.push_back(receive);
    section.push_back(Make("F0[0,1)", {2 * i}));
  }
  Cursor cursor(section);
  while (!cursor.done()) {
    const int32_t next = cursor.Ready().front();
    cursor.Start(next);
    cursor.Finish(next);
  }
  EXPECT_EQ(cursor.finished(), 2 * kActions);
}

}  // namespace
}  // namespace stagewright
