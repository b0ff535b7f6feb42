#include "worker_daemon/device/device_clock.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>

#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/mixed_models.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {
namespace {

constexpr Nanos kLag = 1000 * kSecond;  // More than the test takes.

Nanos Now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + Nanos(time.tv_nsec);
}

// The clock of a device that runs everything so much later than it was queued.
class LateClock : public DeviceClock {
 public:
  Mark Record() override { return std::make_shared<const Nanos>(Now() + kLag); }
  absl::StatusOr<Nanos> TimeOf(const Mark& mark) override {
    return *static_cast<const Nanos*>(mark.get());
  }
  absl::Status Align() override {
    ++aligned;
    return absl::OkStatus();
  }
  int aligned = 0;
};

TEST(DeviceClock, AProcessorNeedsNone) {
  const auto clock = MakeDeviceClock("cpu");
  ASSERT_TRUE(clock.ok()) << clock.status();
  EXPECT_EQ(*clock, nullptr);
}

bool Overlap(const Action& a, const Action& b) {
  return a.stage == b.stage && !Intersect(a.samples, b.samples).empty();
}

// Compute actions have the times of the device, one after the other, and no send begins before what
// it sends is there.
TEST(DeviceClock, TracesTellWhenTheDeviceRanWhat) {
  DeviceJob spec = ClassifierJob("late", /*dropout=*/false, 3);
  UsePlan(spec, {.stages = 3, .micro_batches = 4}, 1);
  const Nanos begin = Now();
  std::vector<std::shared_ptr<LateClock>> clocks;
  const auto result = TrainLocally(spec, [&](DeviceJob& own) {
    clocks.push_back(std::make_shared<LateClock>());
    own.clock = clocks.back();
  });
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(clocks.size(), spec.program->devices.size());
  for (const auto& clock : clocks) EXPECT_EQ(clock->aligned, 3);

  int sends = 0;
  for (const DeviceProgram& device : spec.program->devices) {
    std::vector<TraceEvent> computed, others;
    for (const TraceEvent& event : result->trace) {
      if (event.device != device.device) continue;
      EXPECT_LE(event.start, event.end);
      (IsCompute(event.action.kind) ? computed : others).push_back(event);
    }
    ASSERT_FALSE(computed.empty());
    EXPECT_GE(computed.front().start, begin + kLag);
    for (size_t i = 1; i < computed.size(); ++i) EXPECT_GE(computed[i].start, computed[i - 1].end);
    for (const TraceEvent& other : others) {
      if (!IsSend(other.action.kind)) continue;
      ++sends;
      const ActionKind made_by = other.action.kind == ActionKind::kSendActivation
                                     ? ActionKind::kForward
                                     : ActionKind::kBackward;
      const StageId stage = other.action.kind == ActionKind::kSendActivation
                                ? spec.program->channels[other.action.channel].from
                                : spec.program->channels[other.action.channel].to;
      bool found = false;
      for (const TraceEvent& event : computed) {
        Action sent = other.action;
        sent.stage = stage;
        if (event.step != other.step || event.action.kind != made_by ||
            !Overlap(event.action, sent))
          continue;
        found = true;
        EXPECT_GE(other.start, event.end);
      }
      EXPECT_TRUE(found);
    }
  }
  EXPECT_GT(sends, 0);
}

}  // namespace
}  // namespace stagewright::testing
