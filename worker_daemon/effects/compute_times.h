// When the compute actions of a step really ran on a device with a clock of its own.
#pragma once

#include <array>
#include <vector>

#include "common/base/status.h"
#include "worker_daemon/device/device_clock.h"
#include "worker_daemon/step/step_action.h"

namespace stagewright {

// Not thread-safe.
class ComputeTimes {
 public:
  // `clock` outlives it. Null: operators have run when they return, and nothing below does
  // anything.
  explicit ComputeTimes(DeviceClock* clock) : clock_(clock) {}

  // Around the queueing of each compute action.
  void Begin();
  void End();

  // Gives the compute actions of a step, all that were queued, the device's times instead of the
  // host's, which say when they were queued. What waits for one of them, and was queued behind it,
  // begins no earlier than that has ended. Errors of the clock.
  absl::Status Correct(StepTrace& trace);

 private:
  DeviceClock* const clock_;
  std::vector<std::array<DeviceClock::Mark, 2>> marks_;  // By compute action of the step.
};

}  // namespace stagewright
