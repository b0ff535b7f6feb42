#include "worker_daemon/device/work_clock.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <utility>

namespace stagewright {
namespace {

constexpr int kMostAhead = 256;
constexpr int64_t kOccupied = int64_t{1} << 24;  // Numbers of four bytes.

}  // namespace

double WorkClock(const at::Device& device) {
  timespec time;
  clock_gettime(device.is_cpu() ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

KernelTimer::KernelTimer(const at::Device& device, std::function<void()> occupy)
    : device_(device), occupy_(std::move(occupy)) {
  if (occupy_ != nullptr || device_.is_cpu()) return;
  const auto options = at::TensorOptions().device(device_).dtype(at::kFloat);
  occupy_ = [numbers = at::ones({kOccupied}, options)]() mutable { numbers.neg_(); };
}

double KernelTimer::Fastest(int repeats, const std::function<at::Tensor()>& work) {
  if (device_.is_cpu()) return FastestOnHost(device_, repeats, work);
  return OnAccelerator(repeats, work);
}

double KernelTimer::OnAccelerator(int repeats, const std::function<at::Tensor()>& work) {
  const c10::impl::VirtualGuardImpl guard(device_.type());
  const c10::Stream stream = guard.getStream(device_);
  double best = std::numeric_limits<double>::infinity();
  work();  // What it loads when it first runs would be taken for launches.
  guard.synchronizeStream(stream);
  int left = repeats;
  while (left > 0) {
    // BACKEND_DEFAULT: events that know the time.
    c10::Event start(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    c10::Event end(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    for (int i = 0; i < ahead_; ++i) occupy_();
    start.record(stream);
    const at::Tensor result = work();
    end.record(stream);
    const bool waited = start.query();  // The device came to the work before it was all launched.
    end.synchronize();
    if (waited && ahead_ < kMostAhead) {
      ahead_ *= 2;
      continue;
    }
    best = std::min(best, start.elapsedTime(end) / 1e3);
    --left;
  }
  return best;
}

double FastestOnHost(const at::Device& device, int repeats,
                     const std::function<at::Tensor()>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const double start = WorkClock(device);
    at::Tensor result = work();
    if (device.is_cuda()) result.flatten().slice(0, 0, 1).cpu();  // Waits for the kernels.
    best = std::min(best, WorkClock(device) - start);
  }
  return best;
}

}  // namespace stagewright
