#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/worker_daemon/support/simulated_accelerator.h"
#include "worker_daemon/device/work_clock.h"

namespace stagewright::testing {
namespace {

// Queues a kernel of so long on the device's current stream.
void QueueKernel(const at::Device& device, absl::Duration time) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  QueueOn(guard.getStream(device), [time] { absl::SleepFor(time); });
}

// Launching takes the host ten times as long as the kernel takes the device.
TEST(KernelTimer, AnAcceleratorsKernelsAreTimedWithoutTheirLaunches) {
  const at::Device device("simulated:0");
  int occupied = 0;
  KernelTimer timer(device, [&] {
    ++occupied;
    QueueKernel(device, absl::Milliseconds(10));
  });
  const double seconds = timer.Fastest(3, [&] {
    absl::SleepFor(absl::Milliseconds(40));
    QueueKernel(device, absl::Milliseconds(4));
    return at::Tensor();
  });
  EXPECT_GE(seconds, 0.004);
  EXPECT_LT(seconds, 0.030);
  EXPECT_GE(occupied, 4) << "for as long as it takes to launch";
}

// Work that waits for the device cannot be launched ahead: it is timed all the same.
TEST(KernelTimer, WorkThatWaitsForTheDeviceEnds) {
  const at::Device device("simulated:0");
  const c10::impl::VirtualGuardImpl guard(device.type());
  KernelTimer timer(device, [&] { QueueKernel(device, absl::Microseconds(1)); });
  const double seconds = timer.Fastest(2, [&] {
    QueueKernel(device, absl::Milliseconds(2));
    guard.synchronizeStream(guard.getStream(device));
    return at::Tensor();
  });
  EXPECT_GE(seconds, 0.002);
}

TEST(KernelTimer, AProcessorIsNeverOccupied) {
  KernelTimer timer(at::Device("cpu"), [] { FAIL() << "nothing is queued there"; });
  const at::Tensor numbers = at::ones({1000});
  EXPECT_GT(timer.Fastest(2, [&] { return numbers.exp(); }), 0);
}

}  // namespace
}  // namespace stagewright::testing
