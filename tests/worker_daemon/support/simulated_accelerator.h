// An accelerator in memory of the host, as LibTorch's devices "simulated:0" and ":1": linked
// into a program, it is there.
//
// Streams are threads that run what is queued on them one after the other, so that copies are late
// and take turns at random. Memory is that of one stream, as with LibTorch's allocator for CUDA: it
// is filled with 0xff when it is new, and again when it is freed, at the place that the freeing has
// in its stream and behind those places in other streams that were recorded for it. Copies that do
// not block read and write raw memory when their turn comes. So what uses data too early or too
// late sees numbers that are none.
//
// Operators wait for the current stream of their thread and run on the processor; what they give is
// copied to the device by that stream, late.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace stagewright::testing {

// Queues a function on a stream of a simulated accelerator.
void QueueOn(const c10::Stream& stream, std::function<void()> function);

// From now on calls to the device fail, as to a GPU after an error of this number that stays; 0
// mends it.
void Break(c10::DeviceIndex device, int32_t error);

// From now on memory of more than so many bytes at once is refused, as where it has run out; 0:
// none is.
void LimitAllocations(size_t bytes);

// Until it ends, nothing that is queued on the stream later runs.
class Hold {
 public:
  explicit Hold(const c10::Stream& stream);
  ~Hold();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace stagewright::testing
