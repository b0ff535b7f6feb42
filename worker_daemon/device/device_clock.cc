#include "worker_daemon/device/device_clock.h"

#if STAGEWRIGHT_HAVE_CUDA
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "worker_daemon/device/cuda_clock.h"
#endif

namespace stagewright {

absl::StatusOr<std::unique_ptr<DeviceClock>> MakeDeviceClock(const std::string& torch_device,
                                                             void* stream) {
#if STAGEWRIGHT_HAVE_CUDA
  absl::string_view index = torch_device;
  int gpu = 0;
  if (absl::ConsumePrefix(&index, "cuda:") && absl::SimpleAtoi(index, &gpu))
    return MakeCudaClock(gpu, stream);
  if (torch_device == "cuda") return MakeCudaClock(0, stream);
#endif
  return nullptr;
}

}  // namespace stagewright
