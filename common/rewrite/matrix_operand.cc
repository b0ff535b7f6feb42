#include "common/rewrite/matrix_operand.h"

#include <string_view>

#include "common/graph/aten.h"

namespace stagewright {
namespace {

std::optional<ParameterId> ParameterAt(const Node& node, size_t index) {
  if (index >= node.args.size()) return std::nullopt;
  const auto* id = std::get_if<ParameterId>(&node.args[index].value);
  return id == nullptr ? std::nullopt : std::optional(*id);
}

// Where the operands lie; nothing for other operators.
std::optional<MatrixOperand> OperandsOf(const Node& node) {
  MatrixOperand operands;
  const std::string_view name = AtenName(node.target);
  if (name == "linear") {
    operands = {.input = 0, .matrix = 1, .out_dim = 0, .bias = 2};
    const bool given = node.args.size() > 2 && !std::holds_alternative<None>(node.args[2].value);
    if (!given) operands.bias.reset();
  } else if (name == "mm" || name == "matmul") {
    operands = {.input = 0, .matrix = 1, .out_dim = 1};
  } else if (name == "addmm") {
    if (!node.kwargs.empty()) return std::nullopt;  // Factors of the two terms.
    operands = {.input = 1, .matrix = 2, .out_dim = 1, .bias = 0};
  } else if (name == "embedding") {
    operands = {.input = 1, .matrix = 0, .out_dim = 1, .embedding = true};
  } else {
    return std::nullopt;
  }
  return operands;
}

}  // namespace

std::optional<MatrixOperand> MatrixOf(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  std::optional<MatrixOperand> operands = OperandsOf(node);
  if (!operands.has_value() || node.outputs.size() != 1) return std::nullopt;
  const auto weight = ParameterAt(node, operands->matrix);
  if (!weight.has_value() || operands->input >= node.args.size()) return std::nullopt;
  operands->weight = *weight;
  const Parameter& matrix = graph.parameter(*weight);
  const TensorMeta& out = node.outputs.front();
  if (matrix.shape.size() != 2 || out.shape.empty() ||
      out.shape.back() != SymInt{0, matrix.shape[operands->out_dim]})
    return std::nullopt;
  if (out.layout.has_value() && out.layout->dim + 1 == static_cast<int32_t>(out.shape.size()))
    return std::nullopt;
  if (!operands->bias.has_value()) return operands;
  operands->added = ParameterAt(node, *operands->bias);
  if (!operands->added.has_value()) return std::nullopt;
  const Parameter& bias = graph.parameter(*operands->added);
  if (bias.shape != std::vector<int64_t>{matrix.shape[operands->out_dim]}) return std::nullopt;
  return operands;
}

std::vector<NodeId> NodesOfMatrix(const Graph& graph, ParameterId weight) {
  std::vector<NodeId> nodes;
  for (int32_t v = 0; v < graph.size(); ++v) {
    const auto matrix = MatrixOf(graph, NodeId(v));
    if (matrix.has_value() && matrix->weight == weight) nodes.emplace_back(v);
  }
  return nodes;
}

}  // namespace stagewright
