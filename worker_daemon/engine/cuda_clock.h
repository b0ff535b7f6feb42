// CUDA's events as the clock of a GPU. Built where CUDA's runtime is, whatever LibTorch is.
#pragma once

#include <memory>

#include "worker_daemon/engine/device_clock.h"

namespace stagewright {

// Of CUDA's default stream on the GPU, which is where LibTorch queues what the engine runs.
// FAILED_PRECONDITION if CUDA cannot use that GPU.
absl::StatusOr<std::unique_ptr<DeviceClock>> MakeCudaClock(int gpu);

}  // namespace stagewright
