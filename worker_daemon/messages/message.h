// The bytes of one message of a channel: the values in the channel's order, each row-major and
// aligned to 16 bytes, in the types of common/training/autocast.h. Both ends compute the layout
// from the graph and the precision, so a message has no header.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/base/units.h"
#include "common/training/autocast.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/messages/buffer_pool.h"

namespace stagewright {

// What stands for a message between devices of one process.
struct TensorMessage {
  Bytes bytes = 0;  // The size of the message that it stands for; both ends must agree.
  // Parallel to the values, of their types in messages. Empty for no samples.
  std::vector<at::Tensor> tensors;
  DeviceStreams::Mark made;  // On an accelerator: behind what made them.
};

class MessageLayout {
 public:
  // `types` and `values` must outlive the layout.
  MessageLayout(const MessageTypes& types, const std::vector<ValueRef>& values, int64_t samples);

  Bytes bytes() const { return bytes_; }

  // A contiguous tensor in host memory whose first bytes() bytes are the message. `tensors` is
  // parallel to the values; undefined ones become zeros. Copies, into a buffer from `pool`, only if
  // it must.
  at::Tensor Pack(const std::vector<at::Tensor>& tensors, BufferPool& pool) const;

  // Pack in the memory of `device`, which the tensors are on, too.
  at::Tensor PackOn(at::Device device, const std::vector<at::Tensor>& tensors) const;

  // The values in a buffer of bytes(), on `device`. They share its memory if it is there.
  std::vector<at::Tensor> Unpack(const at::Tensor& buffer, at::Device device) const;

 private:
  // Whether the first tensor is the message as it stands.
  bool IsMessage(const std::vector<at::Tensor>& tensors, at::Device device) const;
  void Fill(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors) const;
  // The i-th value's part of the buffer.
  at::Tensor View(const at::Tensor& buffer, size_t i) const;

  const MessageTypes* types_;
  const std::vector<ValueRef>* values_;
  int64_t samples_;
  std::vector<Bytes> offsets_;
  Bytes bytes_ = 0;
};

}  // namespace stagewright
