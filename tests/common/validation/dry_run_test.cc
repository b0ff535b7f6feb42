#include "common/validation/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/program/check_ids.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ProgramAction Make(const std::string& text, std::vector<int32_t> after = {}) {
  return {*ParseAction(text), std::move(after), 0, 0};
}

// Stage s on device s; a channel that goes either way between stages 0 and 1, and a sum over both.
Program TwoDevices(std::vector<ProgramAction> first, std::vector<ProgramAction> second) {
  Program program;
  program.mini_batch = 2;
  program.stages.resize(2);
  program.channels.resize(1);
  program.channels[0].from = StageId(0);
  program.channels[0].to = StageId(1);
  program.channels[0].source = DeviceId(0);
  program.channels[0].target = DeviceId(1);
  program.reductions.resize(1);
  program.reductions[0].devices = {DeviceId(0), DeviceId(1)};
  program.devices.resize(2);
  for (int64_t d = 0; d < 2; ++d) {
    program.stages[d].devices = {DeviceId(d)};
    program.devices[d].device = DeviceId(d);
  }
  program.devices[0].body = std::move(first);
  program.devices[1].body = std::move(second);
  EXPECT_EQ(CheckIds(program), absl::OkStatus());
  return program;
}

TEST(DryRun, EndsWhereEveryMessageMeetsItsOtherEnd) {
  const Program program =
      TwoDevices({Make("F0[0,2)"), Make("SA0[0,2)@0", {0}), Make("RG0[0,2)@0"),
                  Make("B0[0,2)", {2}), Make("AR0@0", {3}), Make("OS0", {4})},
                 {Make("RA1[0,2)@0"), Make("F1[0,2)", {0}), Make("B1[0,2)", {1}),
                  Make("SG1[0,2)@0", {2}), Make("AR1@0", {2}), Make("OS1", {4})});
  EXPECT_THAT(DryRun(program), IsEmpty());
}

TEST(DryRun, AReceiveWithoutASendIsWaitedForForever) {
  const std::vector<Stuck> stuck =
      DryRun(TwoDevices({Make("F0[0,2)")}, {Make("RA1[0,2)@0"), Make("F1[0,2)", {0})}));
  ASSERT_EQ(stuck.size(), 1u);
  EXPECT_EQ(stuck[0].row, 1);
  EXPECT_EQ(stuck[0].action, 1) << "the compute action, not the transfer before it";
  EXPECT_THAT(stuck[0].waits_for, ElementsAre(0));
}

TEST(DryRun, ASendDoesNotEndBeforeItsReceiveStarts) {
  // The receive waits for a pass that waits for the peer's gradient, which waits for the receive.
  const std::vector<Stuck> stuck =
      DryRun(TwoDevices({Make("F0[0,2)"), Make("SA0[0,2)@0", {0}), Make("RG0[0,2)@0", {1})},
                        {Make("RA1[0,2)@0", {1}), Make("B1[0,2)", {2}), Make("SG1[0,2)@0", {0})}));
  ASSERT_EQ(stuck.size(), 2u);
  EXPECT_EQ(stuck[0].action, 1) << "no compute action is left: the first that is unfinished";
  EXPECT_THAT(stuck[0].waits_for, IsEmpty());
  EXPECT_EQ(stuck[1].action, 1);
  EXPECT_THAT(stuck[1].waits_for, ElementsAre(2));
}

TEST(DryRun, DirectionsOfAChannelDoNotMeet) {
  const std::vector<Stuck> stuck = DryRun(TwoDevices({Make("SA0[0,2)@0")}, {Make("SG1[0,2)@0")}));
  EXPECT_EQ(stuck.size(), 2u);
}

TEST(DryRun, ASumWaitsForAllItsDevices) {
  const std::vector<Stuck> stuck =
      DryRun(TwoDevices({Make("AR0@0"), Make("OS0", {0})}, {Make("OS1")}));
  ASSERT_EQ(stuck.size(), 1u);
  EXPECT_EQ(stuck[0].row, 0);
  EXPECT_THAT(stuck[0].waits_for, ElementsAre(0));
}

}  // namespace
}  // namespace stagewright
