#include "planner_service/drift/drift_causes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/planner_service/drift/drift_case.h"

namespace stagewright {
namespace {

using testing::DriftCase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DriftCausesTest : public ::testing::Test {
 protected:
  DriftCausesTest() {
    names_.device = [](DeviceId device) { return absl::StrCat("w", device.value(), "/cpu0"); };
    names_.node = [](NodeId node) { return absl::StrCat("linear_", node.value()); };
  }

  ActionTimes Times(ActionGroup group, int64_t count, Nanos predicted, Nanos measured,
                    Bytes bytes = 0) {
    return {group, count, bytes, predicted, measured};
  }

  const DriftCase case_;
  NamesOfJob names_;
};

TEST_F(DriftCausesTest, NamesPassesWithTheirOperatorsAndLinks) {
  const std::vector<ActionTimes> actions = {
      Times({ActionKind::kBackward, StageId(1), DeviceId(2), 2, -1}, 4, 9'800'000, 14'100'000),
      Times({ActionKind::kSendActivation, StageId(0), DeviceId(0), 2, 0}, 8, 800'000, 1'900'000,
            4 * kMiB),
      Times({ActionKind::kForward, StageId(0), DeviceId(0), 4, -1}, 4, 2'000'000, 2'050'000)};
  const std::vector<TimedOperator> expected = {
      {DeviceId(1), StageId(1), NodeId(2), 2, 0, 4'000'000},
      {DeviceId(1), StageId(1), NodeId(3), 2, 0, 5'000'000},
      {DeviceId(1), StageId(1), NodeId(4), 2, 0, 800'000}};
  const std::vector<TimedOperator> timed = {
      {DeviceId(2), StageId(1), NodeId(2), 2, 0, 5'000'000},
      {DeviceId(2), StageId(1), NodeId(3), 2, 0, 8'200'000},
      {DeviceId(2), StageId(1), NodeId(4), 2, 0, 900'000},
      {DeviceId(1), StageId(1), NodeId(4), 2, 0, 9'000'000}};  // Another device.
  const auto causes = CausesOf(case_.program, 40 * kMillisecond, 60 * kMillisecond, actions,
                               expected, timed, names_);
  const DeviceId to = case_.program.channels[0].target;
  EXPECT_THAT(
      causes,
      ElementsAre("stage 1 on w2/cpu0: backward pass 14.1 ms, predicted 9.8 ms (+44 %): linear_3, "
                  "linear_2",
                  absl::StrCat("link w0 -> w", to.value(),
                               ": 1.9 ms for 4 MiB, predicted 800 us (+138 %)")));
}

TEST_F(DriftCausesTest, WhatIsFasterExplainsNoSlowerStep) {
  const std::vector<ActionTimes> actions = {
      Times({ActionKind::kForward, StageId(0), DeviceId(0), 4, -1}, 4, 9 * kMillisecond,
            2 * kMillisecond),
      Times({ActionKind::kOptimizerStep, StageId(0), DeviceId(0), 0, -1}, 1, kMillisecond,
            9 * kMillisecond)};
  EXPECT_THAT(
      CausesOf(case_.program, 40 * kMillisecond, 60 * kMillisecond, actions, {}, {}, names_),
      ElementsAre("stage 0 on w0/cpu0: update 9 ms, predicted 1 ms (+800 %)"));
  EXPECT_THAT(
      CausesOf(case_.program, 60 * kMillisecond, 40 * kMillisecond, actions, {}, {}, names_),
      ElementsAre("stage 0 on w0/cpu0: forward pass 2 ms, predicted 9 ms (-78 %)"));
}

TEST_F(DriftCausesTest, SaysSoIfNothingByItselfIsToBlame) {
  const std::vector<ActionTimes> actions = {Times(
      {ActionKind::kForward, StageId(0), DeviceId(0), 4, -1}, 4, kMillisecond, 2 * kMillisecond)};
  EXPECT_THAT(
      CausesOf(case_.program, 40 * kMillisecond, 80 * kMillisecond, actions, {}, {}, names_),
      ElementsAre(HasSubstr("time goes between them")));
}

}  // namespace
}  // namespace stagewright
