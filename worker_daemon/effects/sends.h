// The sends of a device: what passes made, packed and sent along the channels.
//
// On an accelerator a message in host memory is copied beside compute (device_streams.h): it leaves
// when its copy has ended.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/messages/buffer_pool.h"
#include "worker_daemon/messages/channel_routes.h"
#include "worker_daemon/messages/tensor_pieces.h"

namespace stagewright {

// Thread-safe.
class Sends {
 public:
  // All references must outlive it, and `streams`: null, unless what is queued on `device` runs
  // while the compute lane goes on.
  Sends(const Graph& graph, const Program& program, ChannelRoutes& routes, BufferPool& buffers,
        at::Device device, DeviceStreams* streams, EndTransfer end)
      : graph_(graph),
        program_(program),
        routes_(routes),
        buffers_(buffers),
        device_(device),
        streams_(streams),
        end_(std::move(end)) {}

  // Keeps the result of a forward or backward pass until all sends of it have started.
  void Keep(const StepAction& pass, PassResult result) ABSL_LOCKS_EXCLUDED(mutex_);

  // Starts a send, whose pass has ended. Throws what LibTorch throws; then the send has not begun.
  void Start(const StepAction& send) ABSL_LOCKS_EXCLUDED(mutex_);

  // Forgets all results.
  void Clear() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Kept {
    PassResult result;
    size_t sends_left = 0;
    DeviceStreams::Mark made;
  };

  // The result that `send` is a part of; the last send of it takes it.
  Kept ResultFor(const StepAction& send) ABSL_LOCKS_EXCLUDED(mutex_);
  void SendFromDevice(const StepAction& send, const MessageLayout& layout,
                      std::vector<at::Tensor> tensors, const DeviceStreams::Mark& made);
  void SendStaged(const StepAction& send, const MessageLayout& layout,
                  std::vector<at::Tensor> tensors, const DeviceStreams::Mark& made);
  void SendTensors(const StepAction& send, std::vector<at::Tensor> tensors,
                   DeviceStreams::Mark made);
  void SendBuffer(const StepAction& send, Tag tag, const at::Tensor& buffer, Bytes bytes);

  const Graph& graph_;
  const Program& program_;
  ChannelRoutes& routes_;
  BufferPool& buffers_;
  const at::Device device_;
  DeviceStreams* const streams_;
  const EndTransfer end_;
  absl::Mutex mutex_;
  std::map<RunAction, Kept> results_ ABSL_GUARDED_BY(mutex_);  // By pass.
};

}  // namespace stagewright
