#include "worker_daemon/torch/gradient_layout.h"

#include <ATen/ATen.h>

#include <vector>

namespace stagewright {

void KeepGradientLayout(const at::Tensor& result) {
  if (!result.requires_grad() || !result.is_non_overlapping_and_dense()) return;
  result.register_hook([strides = result.strides().vec()](const at::Tensor& gradient) {
    if (!gradient.defined() || gradient.strides() == at::IntArrayRef(strides)) return gradient;
    return at::empty_strided(gradient.sizes(), strides, gradient.options()).copy_(gradient);
  });
}

}  // namespace stagewright
