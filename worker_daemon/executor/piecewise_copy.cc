#include "worker_daemon/executor/piecewise_copy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>

namespace stagewright {

at::Tensor PiecewiseCopy::ToHost(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  at::Tensor host =
      at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).device(at::kCPU));
  if (tensor.is_cpu()) return host.copy_(tensor);
  if (tensor.numel() == 0) return host;
  if (!buffer_.defined()) {
    buffer_ =
        at::empty({piece_.count()}, at::TensorOptions(at::kByte).pinned_memory(tensor.is_cuda()));
  }
  const at::Tensor bytes = tensor.contiguous().view(-1).view(at::kByte);
  auto* out = static_cast<std::byte*>(host.data_ptr());
  for (int64_t begin = 0; begin < bytes.numel(); begin += piece_.count()) {
    const int64_t count = std::min(piece_.count(), bytes.numel() - begin);
    buffer_.narrow(0, 0, count).copy_(bytes.narrow(0, begin, count));
    std::memcpy(out + begin, buffer_.data_ptr(), static_cast<size_t>(count));
  }
  return host;
}

}  // namespace stagewright
