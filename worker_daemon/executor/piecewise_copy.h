// Copies in host memory of tensors that may be on an accelerator, by way of one small buffer.
//
// A copy to ordinary memory holds up CUDA's other calls until the device has come to it. Memory
// that is pinned does not, but it is lost to the rest of the machine, is kept by LibTorch for its
// next use and comes in powers of two: for all weights and states of a checkpoint it would be up to
// twice their size for good. So only the buffer is pinned.
#pragma once

#include <ATen/core/Tensor.h>

#include "common/base/units.h"

namespace stagewright {

// Not thread-safe.
class PiecewiseCopy {
 public:
  // Copies so many bytes at a time.
  explicit PiecewiseCopy(Bytes piece = 32 * kMiB) : piece_(piece) {}

  // A contiguous copy that shares nothing with the tensor, as it is once all has run that is on the
  // stream that the calling thread queues on; waits for that. Throws what LibTorch throws.
  at::Tensor ToHost(const at::Tensor& tensor);

 private:
  const Bytes piece_;
  at::Tensor buffer_;  // Made for the first tensor that is not in host memory.
};

}  // namespace stagewright
