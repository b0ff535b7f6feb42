// The transports for GPUs. The suites keep their data in host memory, so what they send and receive
// is staged here through the GPU's.
#include <cuda_runtime_api.h>

#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "tests/worker_daemon/transport/device_face.h"
#include "tests/worker_daemon/transport/shared_gpus.h"
#include "tests/worker_daemon/transport/worlds.h"
#include "worker_daemon/transport/nccl/nccl_mover.h"

namespace stagewright::testing {
namespace {

// Memory of a GPU, from its pool: unlike cudaMalloc and cudaFree that does not wait for kernels,
// which may wait for a device whose turn has not come.
class Staging {
 public:
  explicit Staging(int gpu) : gpu_(gpu) {
    Use();
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
  }
  ~Staging() {
    Use();
    cudaStreamDestroy(stream_);
  }
  void* Allocate(size_t bytes) {
    Use();
    void* memory = nullptr;
    CHECK(cudaMallocAsync(&memory, bytes + 1, stream_) == cudaSuccess);
    Wait();
    return memory;
  }
  void Copy(void* to, const void* from, size_t bytes) {
    Use();
    CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_) == cudaSuccess);
    Wait();
  }
  void Free(void* memory) {
    Use();
    CHECK(cudaFreeAsync(memory, stream_) == cudaSuccess);
  }

 private:
  void Use() const { CHECK(cudaSetDevice(gpu_) == cudaSuccess); }
  void Wait() const { CHECK(cudaStreamSynchronize(stream_) == cudaSuccess); }

  const int gpu_;
  cudaStream_t stream_ = nullptr;
};

class StagedFace : public DeviceFace {
 public:
  StagedFace(std::unique_ptr<Transport> whole, std::shared_ptr<Staging> staging)
      : DeviceFace(std::move(whole)), staging_(std::move(staging)) {}

  void Send(int peer, Tag tag, const void* data, size_t bytes, Done done) override {
    void* memory = staging_->Allocate(bytes);
    staging_->Copy(memory, data, bytes);
    DeviceFace::Send(peer, tag, memory, bytes,
                     [staging = staging_, memory, done = std::move(done)](absl::Status status) {
                       staging->Free(memory);
                       done(std::move(status));
                     });
  }
  void Receive(int peer, Tag tag, void* data, size_t bytes, Done done) override {
    void* memory = staging_->Allocate(bytes);
    DeviceFace::Receive(
        peer, tag, memory, bytes,
        [staging = staging_, memory, data, bytes, done = std::move(done)](absl::Status status) {
          if (status.ok()) staging->Copy(data, memory, bytes);
          staging->Free(memory);
          done(std::move(status));
        });
  }
  void RunCollective(Collective collective, const std::vector<int>& devices, Tag tag, void* data,
                     size_t count, Element element, Done done) override {
    const size_t bytes = count * ElementSize(element);
    void* memory = staging_->Allocate(bytes);
    staging_->Copy(memory, data, bytes);
    DeviceFace::RunCollective(
        collective, devices, tag, memory, count, element,
        [staging = staging_, memory, data, bytes, done = std::move(done)](absl::Status status) {
          if (status.ok()) staging->Copy(data, memory, bytes);
          staging->Free(memory);
          done(std::move(status));
        });
  }

 private:
  const std::shared_ptr<Staging> staging_;
};

absl::StatusOr<std::unique_ptr<Transport>> CreateNccl(TransportIdentity identity) {
  int gpus = 0;
  CHECK(cudaGetDeviceCount(&gpus) == cudaSuccess);
  const int gpu = identity.device < 0 ? 0 : identity.device % gpus;
  ASSIGN_OR_RETURN(RoutingOptions options, WithNccl({.cuda_device = gpu}));
  ASSIGN_OR_RETURN(auto whole, RoutingTransport::Create(identity, std::move(options)));
  return std::make_unique<StagedFace>(std::move(whole), std::make_shared<Staging>(gpu));
}

}  // namespace

std::vector<Implementation> AllImplementations() {
  constexpr int kMostDevices = 5;  // No test has more.
  Implementation nccl{"Nccl", CreateNccl};
  nccl.isolates_losses = false;
  nccl.crosses_processes = true;
  nccl.absent = std::string(PrepareSharedGpus(kMostDevices).message());
  return {nccl};
}

}  // namespace stagewright::testing
