// How an Executor runs a program.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/training/non_finite.h"
#include "common/training/precision.h"
#include "worker_daemon/device/device_clock.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/device/memory_meter.h"
#include "worker_daemon/update/loss_scale.h"

namespace stagewright {

struct ExecutorOptions {
  at::Device device = at::kCPU;
  uint64_t seed = 0;
  double loss_weight = 1.0;                    // See StageOptions.
  NonFinite on_non_finite = NonFinite::kStop;  // For a loss, or the norm of gradients.
  double max_gradient_norm = 0;                // 0: gradients are not clipped.
  Precision precision = Precision::kGraph;
  // The scale of the loss's gradient. It changes at the end of each step, and steps whose gradients
  // are not finite update nothing, whatever on_non_finite says. Outlives the executor. Null: none.
  LossScale* loss_scale = nullptr;
  // The clock of a device that runs what is queued on it while the compute lane goes on. Outlives
  // the executor. Null: operators have run when they return.
  DeviceClock* clock = nullptr;
  // The streams of a device that runs what is queued on it while the compute lane goes on. Outlive
  // the executor. Null: what computes also copies.
  DeviceStreams* streams = nullptr;
  const MemoryMeter* memory = nullptr;  // Counts the tensors; outlives the executor. Null: none.
  MemoryExpectation expected_memory;    // For messages.
  uint32_t first_channel = 0;           // See TagCounter.
};

}  // namespace stagewright
