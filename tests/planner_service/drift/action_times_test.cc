#include "planner_service/drift/action_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/planner_service/drift/drift_case.h"

namespace stagewright {
namespace {

using testing::DriftCase;

TEST(ActionTimesTest, AStepAsPredictedTakesWhatWasPredicted) {
  const DriftCase c;
  const auto times = CompareTimes(c.program, c.predicted,
                                  c.Steps(3, [](const TraceEvent&) { return 1.0; }), c.OneClock);
  ASSERT_FALSE(times.empty());
  for (const ActionTimes& one : times) EXPECT_EQ(one.measured, one.predicted);
}

TEST(ActionTimesTest, CountsWhatAStepHas) {
  const DriftCase c;
  const auto times = CompareTimes(c.program, c.predicted, c.predicted, c.OneClock);
  int64_t passes = 0, sends = 0, sums = 0;
  for (const ActionTimes& one : times) {
    if (one.group.kind == ActionKind::kForward) passes += one.count;
    if (IsSend(one.group.kind)) {
      sends += one.count;
      EXPECT_EQ(one.bytes, 256 * 4 * one.group.samples);
    }
    if (one.group.kind == ActionKind::kAllReduce) {
      sums += one.count;
      EXPECT_FALSE(one.group.device.valid());
      EXPECT_GT(one.bytes, 0);
    }
  }
  EXPECT_EQ(passes, 4 + 2 * 4);  // Four micro-batches, on one and on two devices.
  EXPECT_EQ(sends, 2 * 2 * 4);   // To each replica and back.
  EXPECT_EQ(sums, static_cast<int64_t>(c.program.reductions.size()));
}

TEST(ActionTimesTest, TheSlowGroupIsFirstAndOneSlowStepDoesNotCount) {
  const DriftCase c;
  const auto slow = [](const TraceEvent& event) {
    const bool backward = event.action.kind == ActionKind::kBackward;
    if (event.step == 1) return 50.0;
    return backward && event.action.stage == StageId(0) ? 1.5 : 1.0;
  };
  const auto times = CompareTimes(c.program, c.predicted, c.Steps(3, slow), c.OneClock);
  ASSERT_GT(times.size(), 1u);
  EXPECT_EQ(times[0].group.kind, ActionKind::kBackward);
  EXPECT_EQ(times[0].group.stage, StageId(0));
  EXPECT_EQ(times[0].measured, Nanos(static_cast<double>(times[0].predicted) * 1.5));
  EXPECT_GT(times[0].Excess(), 0);
  for (size_t i = 1; i < times.size(); ++i) EXPECT_EQ(times[i].measured, times[i].predicted);
}

TEST(ActionTimesTest, ATransferLastsFromTheLaterEndOn) {
  const DriftCase c;
  std::vector<TraceEvent> trace = c.predicted;
  const auto receive_at = [&trace](Nanos start) {  // Before anybody sends.
    for (TraceEvent& event : trace) {
      if (IsReceive(event.action.kind)) event.start = start;
    }
  };
  receive_at(0);
  const auto one = TypicalTimes(c.program, trace, c.OneClock);
  receive_at(-kMillisecond);
  EXPECT_EQ(one, TypicalTimes(c.program, trace, c.OneClock));
  // A device's clock is an hour ahead.
  for (TraceEvent& event : trace) {
    if (event.device != DeviceId(0)) continue;
    event.start += 3600 * kSecond;
    event.end += 3600 * kSecond;
  }
  const auto two = TypicalTimes(c.program, trace, [](DeviceId a, DeviceId b) { return a == b; });
  for (const auto& [group, time] : two) {
    if (IsSend(group.kind)) {
      EXPECT_EQ(time, one.at(group)) << group.channel;
    }
  }
}

TEST(ActionTimesTest, HalfATransferIsNone) {
  const DriftCase c;
  std::vector<TraceEvent> trace = c.predicted;
  std::erase_if(trace, [](const TraceEvent& event) { return IsReceive(event.action.kind); });
  for (const auto& [group, time] : TypicalTimes(c.program, trace, c.OneClock))
    EXPECT_FALSE(IsTransfer(group.kind));
}

}  // namespace
}  // namespace stagewright
