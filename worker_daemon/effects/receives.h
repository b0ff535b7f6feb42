// The receives of a device: messages of the channels, unpacked into the mailbox.
//
// On an accelerator a message in host memory is copied beside compute (device_streams.h): who reads
// it waits for the copy on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/messages/buffer_pool.h"
#include "worker_daemon/messages/channel_routes.h"
#include "worker_daemon/messages/mailbox.h"

namespace stagewright {

// Thread-safe; it has no state of its own.
class Receives {
 public:
  // As the constructor of Sends.
  Receives(ChannelRoutes& routes, BufferPool& buffers, Mailbox& mailbox, at::Device device,
           DeviceStreams* streams, EndTransfer end)
      : routes_(routes),
        buffers_(buffers),
        mailbox_(mailbox),
        device_(device),
        streams_(streams),
        end_(std::move(end)) {}

  // Starts a receive. Throws what LibTorch throws; then the receive has not begun.
  void Start(const StepAction& receive);

 private:
  void StartInto(const StepAction& receive, const MessageLayout& layout, at::Tensor buffer);
  void ReceiveTensors(const StepAction& receive);
  void Unpack(const StepAction& receive, const MessageLayout& layout, const at::Tensor& buffer);
  void Adopt(const StepAction& receive, const TensorMessage& message);

  ChannelRoutes& routes_;
  BufferPool& buffers_;
  Mailbox& mailbox_;
  const at::Device device_;
  DeviceStreams* const streams_;
  const EndTransfer end_;
};

}  // namespace stagewright
