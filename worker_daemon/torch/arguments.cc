#include "worker_daemon/torch/arguments.h"

#include <ATen/ScalarOps.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "worker_daemon/torch/tensor_types.h"

namespace stagewright {
namespace {

// One conversion: what stays the same while lists are entered.
struct Conversion {
  const c10::Argument& schema;
  int64_t samples;
  const TensorSource& tensors;

  absl::Status WrongKind(const c10::Type& type) const {
    return absl::InvalidArgumentError(
        absl::StrCat("argument \"", schema.name(), "\" is not a value of type ", type.str()));
  }
  absl::StatusOr<c10::IValue> Convert(const Argument& argument, const c10::TypePtr& type) const;
  absl::StatusOr<c10::IValue> ConvertList(const Argument& argument,
                                          const c10::ListType& type) const;
  absl::StatusOr<at::Tensor> ConvertTensor(const Argument& argument, const c10::Type& type) const;
  std::optional<at::Scalar> Number(const Argument& argument) const;
  absl::StatusOr<c10::IValue> Integer(int64_t value) const;
};

std::optional<int64_t> MemoryFormatOf(const std::string& name) {
  if (name == "contiguous_format") return static_cast<int64_t>(at::MemoryFormat::Contiguous);
  if (name == "preserve_format") return static_cast<int64_t>(at::MemoryFormat::Preserve);
  if (name == "channels_last") return static_cast<int64_t>(at::MemoryFormat::ChannelsLast);
  if (name == "channels_last_3d") return static_cast<int64_t>(at::MemoryFormat::ChannelsLast3d);
  return std::nullopt;
}

// LibTorch takes any number for one of its enumerations, and may crash for those that are none.
bool IsMember(c10::TypeKind enumeration, int64_t value) {
  switch (enumeration) {
    case c10::TypeKind::ScalarTypeType: {
      for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
        if (static_cast<int64_t>(ToScalarType(static_cast<DType>(i))) == value) return true;
      }
      return false;
    }
    case c10::TypeKind::MemoryFormatType:
      return value >= 0 && value < static_cast<int64_t>(at::MemoryFormat::NumOptions);
    case c10::TypeKind::LayoutType:
      return value == static_cast<int64_t>(at::Layout::Strided);
    default:
      return true;
  }
}

// What a schema's integers stand for.
c10::TypeKind KindBehind(const c10::Argument& schema) {
  c10::TypePtr type = schema.real_type();
  while (type->kind() == c10::TypeKind::OptionalType || type->kind() == c10::TypeKind::ListType)
    type = type->containedType(0);
  return type->kind();
}

std::optional<at::Scalar> Conversion::Number(const Argument& argument) const {
  if (const auto* integer = std::get_if<SymInt>(&argument.value))
    return at::Scalar(integer->At(samples));
  if (const auto* real = std::get_if<double>(&argument.value)) return at::Scalar(*real);
  if (const auto* boolean = std::get_if<bool>(&argument.value)) return at::Scalar(*boolean);
  return std::nullopt;
}

bool IsTensorReference(const Argument& argument) {
  return std::holds_alternative<ValueRef>(argument.value) ||
         std::holds_alternative<ParameterId>(argument.value) ||
         std::holds_alternative<InputId>(argument.value) ||
         std::holds_alternative<TotalId>(argument.value);
}

absl::StatusOr<at::Tensor> Conversion::ConvertTensor(const Argument& argument,
                                                     const c10::Type& type) const {
  if (IsTensorReference(argument)) return tensors(argument);
  const std::optional<at::Scalar> number = Number(argument);
  if (!number.has_value()) return WrongKind(type);
  return at::native::wrapped_scalar_tensor(*number);
}

absl::StatusOr<c10::IValue> Conversion::Integer(int64_t value) const {
  const c10::TypePtr real = schema.real_type();
  if (IsMember(KindBehind(schema), value)) return c10::IValue(value);
  return absl::InvalidArgumentError(absl::StrCat("argument \"", schema.name(), "\" is ", value,
                                                 ", which is no value of type ", real->str()));
}

absl::StatusOr<c10::IValue> Conversion::ConvertList(const Argument& argument,
                                                    const c10::ListType& type) const {
  const c10::TypePtr& element = type.getElementType();
  c10::impl::GenericList list(element);
  if (const auto* items = std::get_if<Argument::List>(&argument.value)) {
    list.reserve(items->size());
    for (const Argument& item : *items) {
      ASSIGN_OR_RETURN(c10::IValue value, Convert(item, element));
      list.push_back(std::move(value));
    }
  } else if (schema.N().has_value()) {
    ASSIGN_OR_RETURN(const c10::IValue value, Convert(argument, element));
    for (int32_t i = 0; i < *schema.N(); ++i) list.push_back(value);
  } else {
    return WrongKind(type);
  }
  return c10::IValue(std::move(list));
}

absl::StatusOr<c10::IValue> Conversion::Convert(const Argument& argument,
                                                const c10::TypePtr& type) const {
  const auto* integer = std::get_if<SymInt>(&argument.value);
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      if (std::holds_alternative<None>(argument.value)) return c10::IValue();
      return Convert(argument, type->expectRef<c10::OptionalType>().getElementType());
    case c10::TypeKind::ListType:
      return ConvertList(argument, type->expectRef<c10::ListType>());
    case c10::TypeKind::TensorType: {
      ASSIGN_OR_RETURN(at::Tensor tensor, ConvertTensor(argument, *type));
      return c10::IValue(std::move(tensor));
    }
    case c10::TypeKind::NumberType: {
      const std::optional<at::Scalar> number = Number(argument);
      if (!number.has_value()) return WrongKind(*type);
      return c10::IValue(*number);
    }
    case c10::TypeKind::FloatType:
      if (integer != nullptr) return c10::IValue(static_cast<double>(integer->At(samples)));
      if (const auto* real = std::get_if<double>(&argument.value)) return c10::IValue(*real);
      return WrongKind(*type);
    case c10::TypeKind::BoolType:
      if (const auto* boolean = std::get_if<bool>(&argument.value)) return c10::IValue(*boolean);
      if (integer != nullptr) return c10::IValue(integer->At(samples) != 0);
      return WrongKind(*type);
    case c10::TypeKind::StringType:
      if (const auto* text = std::get_if<std::string>(&argument.value)) return c10::IValue(*text);
      return WrongKind(*type);
    // Sizes, and the enumerations that schemas carry as integers.
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::LayoutType:
      if (integer != nullptr) return Integer(integer->At(samples));
      if (const auto* boolean = std::get_if<bool>(&argument.value))
        return Integer(static_cast<int64_t>(*boolean));
      if (const auto* dtype = std::get_if<DType>(&argument.value))
        return Integer(static_cast<int64_t>(ToScalarType(*dtype)));
      if (const auto* format = std::get_if<MemoryFormat>(&argument.value)) {
        if (const auto value = MemoryFormatOf(format->name)) return Integer(*value);
      }
      return WrongKind(*type);
    default:
      return WrongKind(*type);
  }
}

}  // namespace

bool IsConstant(const Argument& argument) {
  bool constant = IsKnown(argument);
  ForEachLeaf(argument, [&](const Argument& leaf) {
    if (std::holds_alternative<ParameterId>(leaf.value)) constant = false;
  });
  return constant;
}

bool IsKnown(const Argument& argument) {
  bool known = true;
  ForEachLeaf(argument, [&](const Argument& leaf) {
    const auto* integer = std::get_if<SymInt>(&leaf.value);
    if (std::holds_alternative<ValueRef>(leaf.value) ||
        std::holds_alternative<InputId>(leaf.value) ||
        std::holds_alternative<TotalId>(leaf.value) || (integer != nullptr && integer->scale != 0))
      known = false;
  });
  return known;
}

absl::StatusOr<c10::IValue> ToIValue(const Argument& argument, const c10::Argument& schema,
                                     int64_t samples, const TensorSource& tensors) {
  return Conversion{schema, samples, tensors}.Convert(argument, schema.type());
}

}  // namespace stagewright
