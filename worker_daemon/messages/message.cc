#include "worker_daemon/messages/message.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "common/memory/message_buffers.h"
#include "worker_daemon/torch/tensor_types.h"

namespace stagewright {

MessageLayout::MessageLayout(const MessageTypes& types, const std::vector<ValueRef>& values,
                             int64_t samples)
    : types_(&types), values_(&values), samples_(samples) {
  if (samples <= 0) return;  // An empty share: an empty message.
  for (ValueRef value : values) {
    bytes_ = (bytes_ + kMessageAlignment - 1) / kMessageAlignment * kMessageAlignment;
    offsets_.push_back(bytes_);
    bytes_ += types.SizeBytes(value, samples);
  }
}

at::Tensor MessageLayout::View(const at::Tensor& buffer, size_t i) const {
  const ValueRef value = (*values_)[i];
  return buffer.narrow(0, offsets_[i].count(), types_->SizeBytes(value, samples_).count())
      .view(ToScalarType((*types_)[value]))
      .view(ShapeAt(types_->graph().meta(value), samples_));
}

at::Tensor MessageLayout::Pack(const std::vector<at::Tensor>& tensors, BufferPool& pool) const {
  if (IsMessage(tensors, at::kCPU)) return tensors[0];
  at::Tensor buffer = pool.Take(bytes_);
  Fill(buffer, tensors);
  return buffer;
}

at::Tensor MessageLayout::PackOn(at::Device device, const std::vector<at::Tensor>& tensors) const {
  if (IsMessage(tensors, device)) return tensors[0];
  at::Tensor buffer = at::empty({bytes_.count()}, at::TensorOptions(at::kByte).device(device));
  Fill(buffer, tensors);
  return buffer;
}

bool MessageLayout::IsMessage(const std::vector<at::Tensor>& tensors, at::Device device) const {
  return offsets_.size() == 1 && tensors[0].defined() && tensors[0].is_contiguous() &&
         tensors[0].device() == device &&
         tensors[0].scalar_type() == ToScalarType((*types_)[(*values_)[0]]);
}

void MessageLayout::Fill(const at::Tensor& buffer, const std::vector<at::Tensor>& tensors) const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < offsets_.size(); ++i) {
    if (tensors[i].defined()) {
      View(buffer, i).copy_(tensors[i]);
    } else {
      View(buffer, i).zero_();
    }
  }
}

std::vector<at::Tensor> MessageLayout::Unpack(const at::Tensor& buffer, at::Device device) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < offsets_.size(); ++i) tensors.push_back(View(buffer, i).to(device));
  return tensors;
}

}  // namespace stagewright
