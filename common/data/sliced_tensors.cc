#include "common/data/sliced_tensors.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

// Bytes of a tensor as [outer, shape[dim] * inner].
struct Rows {
  int64_t outer = 1;
  int64_t inner = 1;  // Bytes of an entry along the dimension.
};

Rows RowsOf(const std::vector<int64_t>& shape, DType dtype, int32_t dim) {
  Rows rows;
  rows.inner = SizeOf(dtype).count();
  for (size_t d = 0; d < shape.size(); ++d) {
    if (static_cast<int32_t>(d) < dim) rows.outer *= shape[d];
    if (static_cast<int32_t>(d) > dim) rows.inner *= shape[d];
  }
  return rows;
}

}  // namespace

absl::Status ReadSlice(const TensorView& whole, int32_t dim, int64_t begin, int64_t size,
                       std::span<std::byte> out) {
  const Rows rows = RowsOf(whole.shape, whole.dtype, dim);
  const auto step = static_cast<size_t>(whole.shape[dim] * rows.inner);
  const auto length = static_cast<size_t>(size * rows.inner);
  for (int64_t row = 0; row < rows.outer; ++row) {
    TensorView part = whole;
    const size_t from = static_cast<size_t>(row) * step + static_cast<size_t>(begin * rows.inner);
    part.data = whole.data.subspan(from, length);
    RETURN_IF_ERROR(ReadTensor(part, out.subspan(static_cast<size_t>(row) * length, length)));
  }
  return absl::OkStatus();
}

absl::Status ReadParameter(const TensorView& stored, const Parameter& parameter,
                           std::span<std::byte> out) {
  if (!parameter.slice.has_value()) return ReadTensor(stored, out);
  const ParameterSlice& slice = *parameter.slice;
  return ReadSlice(stored, slice.dim, slice.begin, parameter.shape[slice.dim], out);
}

absl::StatusOr<OwnedTensor> JoinSlices(std::string name, const std::vector<TensorView>& slices,
                                       int32_t dim) {
  OwnedTensor joined{std::move(name), slices.front().dtype, slices.front().shape, {}};
  const auto bad = [&](const TensorView& slice) {
    return absl::InvalidArgumentError(absl::StrCat("tensor \"", slice.name, "\" is ",
                                                   Describe(slice.dtype, slice.shape),
                                                   ", which is no part of \"", joined.name, "\""));
  };
  if (dim < 0 || dim >= static_cast<int32_t>(joined.shape.size())) return bad(slices.front());
  joined.shape[dim] = 0;
  for (const TensorView& slice : slices) {
    if (slice.shape.size() != joined.shape.size() || slice.dtype != joined.dtype) return bad(slice);
    for (size_t d = 0; d < slice.shape.size(); ++d) {
      if (static_cast<int32_t>(d) != dim && slice.shape[d] != joined.shape[d]) return bad(slice);
    }
    joined.shape[dim] += slice.shape[dim];
  }
  const Rows rows = RowsOf(joined.shape, joined.dtype, dim);
  const auto step = static_cast<size_t>(joined.shape[dim] * rows.inner);
  joined.bytes.resize(static_cast<size_t>(rows.outer) * step);
  size_t begin = 0;
  for (const TensorView& slice : slices) {
    std::vector<std::byte> bytes(slice.data.size());
    RETURN_IF_ERROR(ReadTensor(slice, bytes));
    const auto length = static_cast<size_t>(slice.shape[dim] * rows.inner);
    for (size_t row = 0; row < static_cast<size_t>(rows.outer) && length > 0; ++row)
      std::memcpy(&joined.bytes[row * step + begin], &bytes[row * length], length);
    begin += length;
  }
  return joined;
}

}  // namespace stagewright
