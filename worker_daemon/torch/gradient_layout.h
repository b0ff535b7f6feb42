// In which memory layout a gradient comes.
#pragma once

#include <ATen/core/Tensor.h>

namespace stagewright {

// Has the gradient of `result` come to the operator that gave it with the strides of `result`: one
// that comes with others is copied first. For attention on GPUs. LibTorch keeps cuDNN's plans of
// its backward pass by the layout of queries, keys and values alone, though each is made for that
// of one gradient: it took any other for that, without a word, and gave wrong gradients. Nothing
// for a result without a gradient, or whose elements overlap.
void KeepGradientLayout(const at::Tensor& result);

}  // namespace stagewright
