#include "common/rewrite/carried.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "common/graph/aten.h"

namespace stagewright {
namespace {

constexpr std::array<std::string_view, 25> kElementwise = {
    "alias", "add",        "sub",        "mul",      "div",   "relu",        "gelu",
    "silu",  "tanh",       "sigmoid",    "neg",      "exp",   "sqrt",        "rsqrt",
    "pow",   "elu",        "leaky_relu", "softplus", "clone", "masked_fill", "_to_copy",
    "to",    "contiguous", "mish",       "hardswish"};
constexpr std::array<std::string_view, 3> kReshapes = {"view", "reshape", "_unsafe_view"};

bool IsIn(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// A tensor that a node reads, and how it comes.
struct Operand {
  std::vector<SymInt> shape;
  std::optional<InParts> parts;
};

std::vector<SymInt> Constant(const std::vector<int64_t>& shape) {
  std::vector<SymInt> sizes;
  for (int64_t size : shape) sizes.push_back({0, size});
  return sizes;
}

std::optional<Operand> OperandOf(const Graph& graph, const Argument& argument,
                                 const PartsOf& parts_of) {
  if (const auto* value = std::get_if<ValueRef>(&argument.value))
    return Operand{graph.meta(*value).shape, parts_of(*value)};
  if (const auto* input = std::get_if<InputId>(&argument.value))
    return Operand{graph.input(*input).meta.shape, std::nullopt};
  if (const auto* id = std::get_if<ParameterId>(&argument.value))
    return Operand{Constant(graph.parameter(*id).shape), std::nullopt};
  if (const auto* total = std::get_if<TotalId>(&argument.value))
    return Operand{graph.meta(*total).shape, std::nullopt};
  return std::nullopt;
}

std::optional<int64_t> IntegerAt(const Node& node, size_t index) {
  if (index >= node.args.size()) return std::nullopt;
  const auto* number = std::get_if<SymInt>(&node.args[index].value);
  if (number == nullptr || number->scale != 0) return std::nullopt;
  return number->offset;
}

int32_t Rank(const std::vector<SymInt>& shape) { return static_cast<int32_t>(shape.size()); }

// Every operand in parts has the result's rank and comes like the others; what is whole does not
// extend along their dimension.
std::optional<InParts> Elementwise(const Node& node, const std::vector<Operand>& operands) {
  const int32_t rank = Rank(node.outputs.front().shape);
  std::optional<InParts> common;
  for (const Operand& operand : operands) {
    if (!operand.parts.has_value()) continue;
    if (Rank(operand.shape) != rank || (common.has_value() && common != operand.parts))
      return std::nullopt;
    common = operand.parts;
  }
  if (!common.has_value()) return std::nullopt;
  for (const Operand& operand : operands) {
    if (operand.parts.has_value()) continue;
    const int32_t dim = common->dim - (rank - Rank(operand.shape));
    if (dim >= 0 && operand.shape[dim] != SymInt{0, 1}) return std::nullopt;
  }
  return common;
}

std::optional<InParts> Softmax(const Node& node, const std::vector<Operand>& operands) {
  auto dim = IntegerAt(node, 1);
  if (!dim.has_value() || !operands.front().parts.has_value()) return std::nullopt;
  if (*dim < 0) *dim += Rank(operands.front().shape);
  if (*dim == operands.front().parts->dim) return std::nullopt;
  return operands.front().parts;
}

// All of `operands` come alike along a dimension of their own in front of the last `inner` ones.
std::optional<InParts> Batchwise(const std::vector<Operand>& operands, size_t count,
                                 int32_t inner) {
  if (operands.size() < count) return std::nullopt;
  for (size_t i = 0; i < count; ++i) {
    const Operand& operand = operands[i];
    if (!operand.parts.has_value() || operand.parts != operands.front().parts ||
        Rank(operand.shape) != Rank(operands.front().shape) ||
        operand.parts->dim >= Rank(operand.shape) - inner)
      return std::nullopt;
  }
  return operands.front().parts;
}

// scaled_dot_product_attention(q, k, v, mask, dropout, causal): a mask is one for all heads.
std::optional<InParts> Attention(const Node& node, const std::vector<Operand>& operands) {
  const auto parts = Batchwise(operands, 3, 2);
  if (!parts.has_value()) return std::nullopt;
  for (size_t i = 3; i < operands.size(); ++i) {
    const int32_t dim = parts->dim - (Rank(operands[0].shape) - Rank(operands[i].shape));
    if (operands[i].parts.has_value() || (dim >= 0 && operands[i].shape[dim] != SymInt{0, 1}))
      return std::nullopt;
  }
  if (node.args.size() > 4) {  // Masks of a dropout are drawn for the whole.
    const auto* probability = std::get_if<double>(&node.args[4].value);
    if (probability == nullptr || *probability != 0) return std::nullopt;
  }
  for (const NamedArgument& argument : node.kwargs) {
    if (argument.name != "scale" && argument.name != "is_causal") return std::nullopt;
  }
  return parts;
}

std::optional<InParts> Transposed(const Node& node, const std::vector<Operand>& operands) {
  if (!operands.front().parts.has_value()) return std::nullopt;
  auto a = IntegerAt(node, 1), b = IntegerAt(node, 2);
  if (!a.has_value() || !b.has_value()) return std::nullopt;
  const int32_t rank = Rank(operands.front().shape);
  if (*a < 0) *a += rank;
  if (*b < 0) *b += rank;
  InParts parts = *operands.front().parts;
  parts.dim = static_cast<int32_t>(parts.dim == *a ? *b : parts.dim == *b ? *a : parts.dim);
  return parts;
}

std::optional<InParts> Permuted(const Node& node, const std::vector<Operand>& operands) {
  if (!operands.front().parts.has_value() || node.args.size() < 2) return std::nullopt;
  const auto* dims = std::get_if<Argument::List>(&node.args[1].value);
  if (dims == nullptr) return std::nullopt;
  InParts parts = *operands.front().parts;
  for (size_t i = 0; i < dims->size(); ++i) {
    const auto* dim = std::get_if<SymInt>(&(*dims)[i].value);
    if (dim == nullptr || dim->scale != 0) return std::nullopt;
    const int64_t from = dim->offset < 0 ? dim->offset + Rank(operands.front().shape) : dim->offset;
    if (from != operands.front().parts->dim) continue;
    parts.dim = static_cast<int32_t>(i);
    return parts;
  }
  return std::nullopt;
}

// A dimension is added, or one that is not that of the parts is taken away or cut.
enum class Along { kAdded, kRemoved, kKept };

std::optional<InParts> AlongAnother(const Node& node, const std::vector<Operand>& operands,
                                    Along along) {
  if (operands.size() != 1 || !operands.front().parts.has_value()) return std::nullopt;
  auto dim = IntegerAt(node, 1);
  if (!dim.has_value()) return std::nullopt;
  const int32_t rank = Rank(operands.front().shape);
  if (*dim < 0) *dim += along == Along::kAdded ? rank + 1 : rank;
  InParts parts = *operands.front().parts;
  if (along == Along::kAdded) {
    if (*dim <= parts.dim) ++parts.dim;
    return parts;
  }
  if (*dim == parts.dim) return std::nullopt;
  if (along == Along::kRemoved && *dim < parts.dim) --parts.dim;
  return parts;
}

int64_t Product(std::span<const SymInt> sizes, int64_t samples) {
  int64_t product = 1;
  for (const SymInt& size : sizes) product *= size.At(samples);
  return product;
}

// Parts are blocks of the entries behind a prefix of the dimensions; they stay apart where the
// result has the same prefix and then a dimension that holds whole blocks.
std::optional<InParts> Reshaped(const Node& node, const std::vector<Operand>& operands) {
  if (operands.size() != 1 || !operands.front().parts.has_value()) return std::nullopt;
  const InParts& parts = *operands.front().parts;
  const std::span<const SymInt> before(operands.front().shape.data(), parts.dim);
  const std::vector<SymInt>& after = node.outputs.front().shape;
  for (int32_t d = 0; d < Rank(after); ++d) {
    const std::span<const SymInt> prefix(after.data(), d);
    if (Product(prefix, 2) != Product(before, 2) || Product(prefix, 3) != Product(before, 3))
      continue;
    if (after[d].scale == 0 && after[d].offset >= parts.parts && after[d].offset % parts.parts == 0)
      return InParts{d, parts.parts};
  }
  return std::nullopt;
}

}  // namespace

std::optional<InParts> CarriedParts(const Graph& graph, NodeId id, const PartsOf& parts_of) {
  const Node& node = graph.node(id);
  if (node.cost.has_value() || node.outputs.size() != 1 || node.batch_dependent ||
      node.args.empty())
    return std::nullopt;
  std::vector<Operand> operands;
  for (const Argument& argument : node.args) {
    auto operand = OperandOf(graph, argument, parts_of);
    if (operand.has_value()) operands.push_back(*std::move(operand));
  }
  for (const NamedArgument& argument : node.kwargs) {
    if (OperandOf(graph, argument.value, parts_of).has_value()) return std::nullopt;
  }
  if (operands.empty()) return std::nullopt;
  const std::string_view name = AtenName(node.target);
  std::optional<InParts> carried;
  if (IsIn(kElementwise, name)) carried = Elementwise(node, operands);
  if (IsIn(kReshapes, name)) carried = Reshaped(node, operands);
  if (name == "softmax" || name == "_softmax") carried = Softmax(node, operands);
  if (name == "matmul" || name == "bmm") carried = Batchwise(operands, 2, 2);
  if (name == "scaled_dot_product_attention") carried = Attention(node, operands);
  if (name == "transpose") carried = Transposed(node, operands);
  if (name == "permute") carried = Permuted(node, operands);
  if (name == "unsqueeze") carried = AlongAnother(node, operands, Along::kAdded);
  if (name == "select") carried = AlongAnother(node, operands, Along::kRemoved);
  if (name == "slice") carried = AlongAnother(node, operands, Along::kKept);
  if (name == "squeeze") {
    const bool removes = operands[0].shape.size() > node.outputs.front().shape.size();
    carried = AlongAnother(node, operands, removes ? Along::kRemoved : Along::kKept);
  }
  if (!carried.has_value()) return std::nullopt;
  const TensorMeta& out = node.outputs.front();
  if (carried->dim < 0 || carried->dim >= Rank(out.shape)) return std::nullopt;
  const SymInt size = out.shape[carried->dim];
  const auto samples = out.Samples();
  if (size.scale != 0 || size.offset % carried->parts != 0 || out.mixed ||
      (samples.has_value() && samples->dim == carried->dim))
    return std::nullopt;
  return carried;
}

TensorMeta MetaOfPart(TensorMeta meta, const InParts& parts) {
  meta.shape[parts.dim].offset /= parts.parts;
  return meta;
}

Node WithSizesOfPart(const Graph& graph, NodeId id, const InParts& parts) {
  Node node = graph.node(id);
  const int64_t whole = node.outputs.front().shape[parts.dim].offset;
  node.outputs.front() = MetaOfPart(std::move(node.outputs.front()), parts);
  if (!IsIn(kReshapes, AtenName(node.target)) || node.args.size() < 2) return node;
  auto* sizes = std::get_if<Argument::List>(&node.args[1].value);
  if (sizes == nullptr || static_cast<size_t>(parts.dim) >= sizes->size()) return node;
  auto* size = std::get_if<SymInt>(&(*sizes)[parts.dim].value);
  if (size != nullptr && *size == SymInt{0, whole}) size->offset = whole / parts.parts;
  return node;
}

}  // namespace stagewright
