#include "worker_daemon/torch/tensor_types.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/data/safetensors.h"

namespace stagewright {
at::ScalarType ToScalarType(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return at::kDouble;
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat16:
      return at::kHalf;
    case DType::kBFloat16:
      return at::kBFloat16;
    case DType::kInt64:
      return at::kLong;
    case DType::kInt32:
      return at::kInt;
    case DType::kInt16:
      return at::kShort;
    case DType::kInt8:
      return at::kChar;
    case DType::kUInt8:
      return at::kByte;
    case DType::kBool:
      return at::kBool;
  }
  CHECK(false);
}

std::vector<int64_t> ShapeAt(const TensorMeta& meta, int64_t samples) {
  std::vector<int64_t> shape;
  shape.reserve(meta.shape.size());
  for (const SymInt& dim : meta.shape) shape.push_back(dim.At(samples));
  return shape;
}

std::string Describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  for (DType dtype :
       {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kInt64,
        DType::kInt32, DType::kInt16, DType::kInt8, DType::kUInt8, DType::kBool}) {
    if (ToScalarType(dtype) == tensor.scalar_type()) return Describe(dtype, tensor.sizes().vec());
  }
  return absl::StrCat(c10::toString(tensor.scalar_type()), "[", absl::StrJoin(tensor.sizes(), ", "),
                      "]");
}

bool Matches(const at::Tensor& tensor, const TensorMeta& meta, int64_t samples, bool mixed) {
  if (!tensor.defined() || tensor.dim() != static_cast<int64_t>(meta.shape.size())) return false;
  const bool both_floating = tensor.is_floating_point() && IsFloating(meta.dtype);
  if (tensor.scalar_type() != ToScalarType(meta.dtype) && !(mixed && both_floating)) return false;
  for (size_t i = 0; i < meta.shape.size(); ++i) {
    if (tensor.size(static_cast<int64_t>(i)) != meta.shape[i].At(samples)) return false;
  }
  return true;
}

}  // namespace stagewright
