// The time that work takes by itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace stagewright {

// Seconds of a clock that, for work on the processor, runs only while the calling thread has a
// core: other programs may have it meanwhile, such as workers that start at the same time. For
// accelerators it is the time that passes.
double WorkClock(const at::Device& device);

// How long a device computes, without what the host takes to start it.
class KernelTimer {
 public:
  // `occupy` queues a little work on the current stream of an accelerator that is not timed; by
  // default a pass over 64 MiB. Never asked for on a processor.
  explicit KernelTimer(const at::Device& device, std::function<void()> occupy = {});

  // The shortest of several runs of `work` in seconds: the one least disturbed. On a processor by
  // WorkClock. An accelerator times its kernels itself; so that it does not wait for the host
  // meanwhile, it is occupied before for as long as the host takes to launch them, as in a step,
  // where the queue is never empty. Work that takes the host longer than 256 times what `occupy`
  // queues, or that waits for the device, is timed with its launches. REQUIRES: repeats >= 1.
  double Fastest(int repeats, const std::function<at::Tensor()>& work);

  const at::Device& device() const { return device_; }

 private:
  double OnAccelerator(int repeats, const std::function<at::Tensor()>& work);

  const at::Device device_;
  std::function<void()> occupy_;
  int ahead_ = 1;  // What to occupy the device with before the next run.
};

// The shortest of several runs on the host's clock (WorkClock), in seconds, from the first launch
// to when a GPU has the result.
double FastestOnHost(const at::Device& device, int repeats,
                     const std::function<at::Tensor()>& work);

}  // namespace stagewright
