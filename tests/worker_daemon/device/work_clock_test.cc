#include "worker_daemon/device/work_clock.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace stagewright {
namespace {

TEST(WorkClock, StandsStillWhileTheThreadHasNoCore) {
  const double start = WorkClock(at::kCPU);
  absl::SleepFor(absl::Milliseconds(50));
  const double slept = WorkClock(at::kCPU);
  EXPECT_LT(slept - start, 0.025);
  while (WorkClock(at::kCPU) < slept + 0.002) continue;  // Work does end.
}

TEST(WorkClock, GoesOnWhileAnAcceleratorWorks) {
  const double start = WorkClock(at::kCUDA);
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_GE(WorkClock(at::kCUDA) - start, 0.05);
}

}  // namespace
}  // namespace stagewright
