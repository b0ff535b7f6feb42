// CUDA's events as the clock of a GPU. Built where CUDA's runtime is, whatever LibTorch is.
#pragma once

#include <memory>

#include "worker_daemon/device/device_clock.h"

namespace stagewright {

// The clock of the cudaStream_t `stream` on the GPU; CUDA's default stream if it is null.
// FAILED_PRECONDITION if CUDA cannot use that GPU.
absl::StatusOr<std::unique_ptr<DeviceClock>> MakeCudaClock(int gpu, void* stream = nullptr);

}  // namespace stagewright
