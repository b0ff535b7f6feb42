// When actions run on an accelerator, which runs what is queued there while the program goes on.
// No LibTorch here.
#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/base/units.h"

namespace stagewright {

// Not thread-safe.
class DeviceClock {
 public:
  // A place in what is queued.
  using Mark = std::shared_ptr<const void>;

  virtual ~DeviceClock() = default;

  // After what has been queued so far.
  virtual Mark Record() = 0;

  // When the device came to the mark, by CLOCK_MONOTONIC. Waits for it. INTERNAL if the device
  // failed.
  virtual absl::StatusOr<Nanos> TimeOf(const Mark& mark) = 0;

  // Compares the device's clock with the host's anew, because they drift. Waits for all that is
  // queued.
  virtual absl::Status Align() = 0;
};

// That of the device that LibTorch calls `torch_device`, for what is queued on `stream`, which is
// what its library calls it (current_stream.h); null for a CPU, whose operators have run when they
// return. Errors of MakeCudaClock.
absl::StatusOr<std::unique_ptr<DeviceClock>> MakeDeviceClock(const std::string& torch_device,
                                                             void* stream = nullptr);

}  // namespace stagewright
