// The time that work takes by itself.
#pragma once

#include <ATen/core/Tensor.h>

namespace stagewright {

// Seconds of a clock that, for work on the processor, runs only while the calling thread has a
// core: other programs may have it meanwhile, such as workers that start at the same time. For
// accelerators it is the time that passes.
double WorkClock(const at::Device& device);

}  // namespace stagewright
