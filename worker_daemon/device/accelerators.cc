#include "worker_daemon/device/accelerators.h"

#include "absl/strings/str_cat.h"

#if STAGEWRIGHT_HAVE_CUDA
#include <cuda_runtime_api.h>

#include "worker_daemon/cuda/current_gpu.h"
#endif

namespace stagewright {

#if STAGEWRIGHT_HAVE_CUDA
// Buffers of NCCL's connections, workspaces of matrix products on every stream (32 MiB each on the
// largest GPUs), kernels that are loaded when they are first used.
constexpr Bytes kReserve = 3 * kGiB / 2;
#endif

std::vector<Accelerator> Accelerators() {
  std::vector<Accelerator> accelerators;
#if STAGEWRIGHT_HAVE_CUDA
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return accelerators;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) break;
    accelerators.push_back({properties.name, static_cast<Bytes>(properties.totalGlobalMem)});
  }
#endif
  return accelerators;
}

int CudaRuntimeVersion() {
  int version = 0;
#if STAGEWRIGHT_HAVE_CUDA
  if (cudaRuntimeGetVersion(&version) != cudaSuccess) version = 0;
#endif
  return version;
}

absl::StatusOr<Bytes> MemoryForJobs(int gpu) {
#if STAGEWRIGHT_HAVE_CUDA
  const CurrentGpu current(gpu);
  size_t free = 0, all = 0;
  if (const cudaError_t error = cudaMemGetInfo(&free, &all); error != cudaSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("GPU ", gpu, ": ", cudaGetErrorString(error)));
  }
  const Bytes left = static_cast<Bytes>(free) - kReserve;
  if (left <= 0) {
    return absl::ResourceExhaustedError(absl::StrCat("GPU ", gpu, ": of ", all, " bytes ", free,
                                                     " are free, and ", kReserve,
                                                     " are kept for its libraries"));
  }
  return left;
#else
  return absl::FailedPreconditionError(
      absl::StrCat("GPU ", gpu, ": this build was made without CUDA"));
#endif
}

}  // namespace stagewright
