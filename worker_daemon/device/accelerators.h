// GPUs that this build and this machine can use.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"

namespace stagewright {

struct Accelerator {
  std::string name;  // "NVIDIA H200"
  Bytes memory = 0;  // In all.
};

// By CUDA's index; empty in a build without CUDA or without a GPU.
std::vector<Accelerator> Accelerators();

// The version of CUDA's runtime in this build: 13000 is 13.0; 0 without CUDA.
int CudaRuntimeVersion();

// What a job may be given of a GPU's memory: what nobody uses now, without what comes to use it
// beside a job's tensors. Takes the GPU into use. Errors: FAILED_PRECONDITION where CUDA cannot
// say, RESOURCE_EXHAUSTED if nothing is left.
absl::StatusOr<Bytes> MemoryForJobs(int gpu);

}  // namespace stagewright
