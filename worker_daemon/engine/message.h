// The bytes of one message of a channel: the values in the channel's order, each row-major and
// aligned to 16 bytes. Both ends compute the layout from the graph, so a message has no header.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/base/units.h"
#include "common/graph/graph.h"

namespace stagewright {

class MessageLayout {
 public:
  // `graph` and `values` must outlive the layout.
  MessageLayout(const Graph& graph, const std::vector<ValueRef>& values, int64_t samples);

  Bytes bytes() const { return bytes_; }

  // A contiguous tensor in host memory whose first bytes() bytes are the message. `tensors` is
  // parallel to the values; undefined ones become zeros. Copies only if it must.
  at::Tensor Pack(const std::vector<at::Tensor>& tensors) const;

  // An uninitialised buffer in host memory to receive the message in.
  at::Tensor Allocate() const;

  // The values in a buffer from Allocate(), on `device`. They share its memory if that is the host.
  std::vector<at::Tensor> Unpack(const at::Tensor& buffer, at::Device device) const;

 private:
  // The i-th value's part of the buffer.
  at::Tensor View(const at::Tensor& buffer, size_t i) const;

  const Graph* graph_;
  const std::vector<ValueRef>* values_;
  int64_t samples_;
  std::vector<Bytes> offsets_;
  Bytes bytes_ = 0;
};

}  // namespace stagewright
