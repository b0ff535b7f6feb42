#include "worker_daemon/device/cuda_clock.h"

#include <cuda_runtime_api.h>
#include <time.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker_daemon/cuda/current_gpu.h"

namespace stagewright {
namespace {

absl::Status Cuda(const char* what, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", cudaGetErrorString(error)));
}

// A recorded event, or why it could not be.
struct Event {
  Event(int on, cudaStream_t stream) : gpu(on) {
    const CurrentGpu current(gpu);
    error = cudaEventCreate(&event);
    if (error == cudaSuccess) error = cudaEventRecord(event, stream);
  }
  ~Event() {
    const CurrentGpu current(gpu);
    if (event != nullptr) cudaEventDestroy(event);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // Waits until the GPU has come to it.
  absl::Status Await() const {
    RETURN_IF_ERROR(Cuda("cudaEventRecord", error));
    return Cuda("cudaEventSynchronize", cudaEventSynchronize(event));
  }

  const int gpu;
  cudaEvent_t event = nullptr;
  cudaError_t error = cudaSuccess;
};

Nanos Now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + Nanos(time.tv_nsec);
}

class CudaClock : public DeviceClock {
 public:
  CudaClock(int gpu, cudaStream_t stream) : gpu_(gpu), stream_(stream) {}

  Mark Record() override { return std::make_shared<const Event>(gpu_, stream_); }

  absl::StatusOr<Nanos> TimeOf(const Mark& mark) override {
    const auto& event = *static_cast<const Event*>(mark.get());
    RETURN_IF_ERROR(event.Await());
    float milliseconds = 0;
    RETURN_IF_ERROR(Cuda("cudaEventElapsedTime",
                         cudaEventElapsedTime(&milliseconds, base_->event, event.event)));
    return base_time_ + Nanos(std::llround(static_cast<double>(milliseconds) * 1e6));
  }

  absl::Status Align() override {
    const CurrentGpu current(gpu_);
    RETURN_IF_ERROR(Cuda("cudaStreamSynchronize", cudaStreamSynchronize(stream_)));
    // Nothing is queued, so the GPU comes to the event somewhere between these.
    const Nanos before = Now();
    auto base = std::make_unique<const Event>(gpu_, stream_);
    RETURN_IF_ERROR(base->Await());
    base_time_ = before + (Now() - before) / 2;
    base_ = std::move(base);
    return absl::OkStatus();
  }

 private:
  const int gpu_;
  const cudaStream_t stream_;
  std::unique_ptr<const Event> base_;
  Nanos base_time_ = 0;  // When the GPU came to base_.
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceClock>> MakeCudaClock(int gpu, void* stream) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || gpu < 0 || gpu >= count) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no GPU ", gpu, " that CUDA can use: ",
        error != cudaSuccess ? cudaGetErrorString(error) : absl::StrCat("there are ", count)));
  }
  auto clock = std::make_unique<CudaClock>(gpu, static_cast<cudaStream_t>(stream));
  RETURN_IF_ERROR(clock->Align());
  return clock;
}

}  // namespace stagewright
