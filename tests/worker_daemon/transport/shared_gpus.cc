#include "tests/worker_daemon/transport/shared_gpus.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker_daemon/transport/nccl/nccl_mover.h"

namespace stagewright::testing {

// Kernels that wait for one another must be on the GPU together: few blocks each, queues of their
// own, and nothing that waits for the whole GPU, such as to load a kernel when it is first used.
absl::Status PrepareSharedGpus(int devices) {
  const std::pair<const char*, const char*> environment[] = {
      {"NCCL_MULTI_RANK_GPU_ENABLE", "1"},
      {"NCCL_MAX_CTAS", "4"},
      {"NCCL_NVLS_ENABLE", "0"},
      {"CUDA_MODULE_LOADING", "EAGER"},
      {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
  };
  for (const auto& [name, value] : environment) setenv(name, value, 0);
  RETURN_IF_ERROR(NcclUsable());
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) == cudaSuccess && gpus < devices && !GpusMayBeShared()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "needs ", devices, " GPUs, or NCCL 2.30 for several devices on ", "one: there are ", gpus));
  }
  return absl::OkStatus();
}

}  // namespace stagewright::testing
