// Between the graph's types and LibTorch's.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "common/graph/tensor.h"

namespace stagewright {

at::ScalarType ToScalarType(DType dtype);

// The sizes of a tensor for that many samples.
std::vector<int64_t> ShapeAt(const TensorMeta& meta, int64_t samples);

// "float32[8, 16]", for messages; as Describe(DType, shape) of safetensors.h.
std::string Describe(const at::Tensor& tensor);

// Whether the tensor is what the graph says for that many samples. With `mixed` (autocast.h) a
// floating-point one may be of any such type.
bool Matches(const at::Tensor& tensor, const TensorMeta& meta, int64_t samples, bool mixed = false);

}  // namespace stagewright
