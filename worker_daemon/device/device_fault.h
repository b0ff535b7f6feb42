// Errors after which a process can use an accelerator no more: whatever it calls fails, until it is
// started anew.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace stagewright {

// Whether an error of CUDA's runtime, by its number, stays with the process.
//
// Reference: CUDA runtime API, enum cudaError, where the reference says of an error that "the
// process must be terminated and relaunched"; and what hardware lost, in memory or on NVLink.
bool IsSticky(int32_t cuda_error);

// What the device answers now, without waiting for what it computes: OK, or FAILED_PRECONDITION
// with the device and its error, a line, if that is one that stays. The host's is always OK.
absl::Status FaultOf(const std::string& torch_device);

}  // namespace stagewright
