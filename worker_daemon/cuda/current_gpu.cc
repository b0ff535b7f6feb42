#include "worker_daemon/cuda/current_gpu.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace stagewright {
namespace {

// Through the runtime, which finds the driver's functions: a machine without a driver has none to
// link.
bool IsInUse(int gpu) {
  using GetState = CUresult (*)(CUdevice, unsigned int*, int*);
  static const GetState get_state = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuDevicePrimaryCtxGetState", &function, 12000, cudaEnableDefault, &found);
    const bool usable = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return usable ? reinterpret_cast<GetState>(function) : nullptr;
  }();
  unsigned int flags = 0;
  int active = 0;
  return get_state != nullptr && get_state(gpu, &flags, &active) == CUDA_SUCCESS && active != 0;
}

}  // namespace

CurrentGpu::CurrentGpu(int gpu) {
  if (cudaGetDevice(&before_) != cudaSuccess) before_ = gpu;
  if (before_ == gpu) return;
  goes_back_ = IsInUse(before_);
  cudaSetDevice(gpu);
}

CurrentGpu::~CurrentGpu() {
  if (goes_back_) cudaSetDevice(before_);
}

}  // namespace stagewright
