// GPUs for the devices of a test, which share them if there are fewer.
#pragma once

#include "absl/status/status.h"

namespace stagewright::testing {

// OK if so many devices of this process can meet through NCCL on the GPUs that there are; otherwise
// FAILED_PRECONDITION with the reason. Sets what that takes in the environment, where it is not set
// yet: NCCL and CUDA read it when they are first called, so call this before them.
absl::Status PrepareSharedGpus(int devices);

}  // namespace stagewright::testing
