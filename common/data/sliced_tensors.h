// Slices of tensors (ParameterSlice): taken out of the whole, and put together again.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/data/safetensors.h"
#include "common/graph/graph_data.h"

namespace stagewright {

// Copies the entries [begin, begin + size) along `dim` of a tensor to `out`, row-major, which has
// as many bytes. REQUIRES: they are there. Errors of ReadTensor. O(bytes + slices of rows).
absl::Status ReadSlice(const TensorView& whole, int32_t dim, int64_t begin, int64_t size,
                       std::span<std::byte> out);

// Copies what `parameter` is of the tensor that is stored for it: all, or its slice.
// REQUIRES: `stored` has type and shape of StoredTensor(parameter).
absl::Status ReadParameter(const TensorView& stored, const Parameter& parameter,
                           std::span<std::byte> out);

// A tensor in memory.
struct OwnedTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;

  TensorView view() const { return {name, dtype, shape, bytes}; }
};

// The slices of a tensor one after the other along `dim`. INVALID_ARGUMENT, naming the slice, if
// they differ in type or in another dimension; errors of ReadTensor. O(bytes).
absl::StatusOr<OwnedTensor> JoinSlices(std::string name, const std::vector<TensorView>& slices,
                                       int32_t dim);

}  // namespace stagewright
