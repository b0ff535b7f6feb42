#include "worker_daemon/device/accelerators.h"

#if STAGEWRIGHT_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace stagewright {

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

}  // namespace stagewright
