#include "common/cost/operations/alignment.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/graph/aten.h"

namespace stagewright {
namespace {

// Views whose last dimension need not be the one that lies densely in memory.
constexpr std::array<std::string_view, 7> kTranspositions = {
    "t", "transpose", "permute", "mT", "swapaxes", "swapdims", "movedim"};

bool Transposes(const Node& node) {
  const std::string_view name = AtenName(node.target);
  return std::find(kTranspositions.begin(), kTranspositions.end(), name) != kTranspositions.end();
}

bool IsUnaligned(const std::vector<SymInt>& shape, Bytes scalar) {
  if (shape.size() < 2 || shape.back().scale != 0) return false;
  return shape.back().offset * scalar.count() % kTensorCoreAlignment.count() != 0;
}

bool IsUnaligned(const Graph& graph, const Argument& operand, Bytes scalar) {
  const Argument* tensor = &operand;
  while (const auto* value = std::get_if<ValueRef>(&tensor->value)) {
    const Node& node = graph.node(value->node);
    if (!Transposes(node) || node.args.empty())
      return IsUnaligned(graph.meta(*value).shape, scalar);
    tensor = &node.args.front();
  }
  if (const auto* input = std::get_if<InputId>(&tensor->value))
    return IsUnaligned(graph.input(*input).meta.shape, scalar);
  const auto* parameter = std::get_if<ParameterId>(&tensor->value);
  if (parameter == nullptr) return false;
  std::vector<SymInt> shape;
  for (int64_t length : graph.parameter(*parameter).shape) shape.push_back({0, length});
  return IsUnaligned(shape, scalar);
}

}  // namespace

bool HasUnalignedRows(const Graph& graph, NodeId id, Bytes scalar) {
  const Node& node = graph.node(id);
  if (KindOfTarget(node.target) != AtenKind::kMatmul) return false;
  const auto unaligned = [&](const auto& tensor) { return IsUnaligned(graph, tensor, scalar); };
  return std::any_of(node.args.begin(), node.args.end(), unaligned) ||
         std::any_of(node.outputs.begin(), node.outputs.end(),
                     [&](const TensorMeta& result) { return IsUnaligned(result.shape, scalar); });
}

}  // namespace stagewright
