// Data types, symbolic shapes and operator arguments: the vocabulary of the graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/ids.h"
#include "common/base/units.h"

namespace stagewright {

enum class DType : uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool
};

Bytes SizeOf(DType dtype);
std::string_view DTypeName(DType dtype);  // "float32"
bool IsFloating(DType dtype);

// scale * samples + offset, where samples is the number of samples in the micro-batch at hand.
struct SymInt {
  int64_t scale = 0;
  int64_t offset = 0;

  int64_t At(int64_t samples) const { return scale * samples + offset; }
  friend bool operator==(const SymInt&, const SymInt&) = default;
};

// Where the samples of a tensor lie: dimension `dim` has outer * samples * inner entries, and entry
// (o * samples + s) * inner + i of it belongs to sample s. Sample-major values have outer = 1,
// time-major ones (`[time * batch]`) have inner = 1.
struct SampleLayout {
  int32_t dim = 0;
  int64_t outer = 1;
  friend bool operator==(const SampleLayout&, const SampleLayout&) = default;
};

struct TensorMeta {
  DType dtype = DType::kFloat32;
  std::vector<SymInt> shape;
  // As captured. Without one, and unless `mixed`, the samples lie along dimension 0 if that has one
  // entry per sample and no other dimension depends on their number.
  std::optional<SampleLayout> layout;
  bool mixed = false;  // Its entries belong to no sample alone, or it is not known to which.

  int64_t Elements(int64_t samples) const;
  Bytes SizeBytes(int64_t samples) const { return Elements(samples) * SizeOf(dtype); }
  // Nothing: the tensor cannot be cut and joined at sample boundaries.
  std::optional<SampleLayout> Samples() const;
  bool IsBatched() const { return Samples().has_value(); }
  // Any dimension depends on the number of samples.
  bool DependsOnBatch() const;
  friend bool operator==(const TensorMeta&, const TensorMeta&) = default;
};

// One output of one node.
struct ValueRef {
  NodeId node;
  int32_t output = 0;
  friend auto operator<=>(const ValueRef&, const ValueRef&) = default;
};

struct None {
  friend bool operator==(None, None) = default;
};

struct MemoryFormat {
  std::string name;
  friend bool operator==(const MemoryFormat&, const MemoryFormat&) = default;
};

// One operator argument, in the kinds of an ATen schema.
struct Argument {
  using List = std::vector<Argument>;
  std::variant<ValueRef, ParameterId, InputId, SymInt, double, bool, std::string, None, List, DType,
               MemoryFormat, TotalId>
      value;
  friend bool operator==(const Argument&, const Argument&) = default;
};

struct NamedArgument {
  std::string name;
  Argument value;
  friend bool operator==(const NamedArgument&, const NamedArgument&) = default;
};

}  // namespace stagewright
