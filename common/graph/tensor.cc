#include "common/graph/tensor.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagewright {

Bytes SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kInt16:
      return 2;
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool:
      return 1;
  }
  CHECK(false);
}

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return "float64";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt64:
      return "int64";
    case DType::kInt32:
      return "int32";
    case DType::kInt16:
      return "int16";
    case DType::kInt8:
      return "int8";
    case DType::kUInt8:
      return "uint8";
    case DType::kBool:
      return "bool";
  }
  CHECK(false);
}

bool IsFloating(DType dtype) { return dtype <= DType::kBFloat16; }

int64_t TensorMeta::Elements(int64_t samples) const {
  int64_t product = 1;
  for (const SymInt& dim : shape) product *= dim.At(samples);
  return product;
}

std::optional<SampleLayout> TensorMeta::Samples() const {
  if (layout.has_value() || mixed) return layout;
  const bool first =
      !shape.empty() && shape[0] == SymInt{1, 0} &&
      std::all_of(shape.begin() + 1, shape.end(), [](const SymInt& d) { return d.scale == 0; });
  return first ? std::optional(SampleLayout{}) : std::nullopt;
}

bool TensorMeta::DependsOnBatch() const {
  return std::any_of(shape.begin(), shape.end(), [](const SymInt& d) { return d.scale != 0; });
}

}  // namespace stagewright
