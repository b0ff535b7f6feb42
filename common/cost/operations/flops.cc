#include "common/cost/operations/flops.h"

#include <string_view>
#include <variant>

#include "common/cost/cost_model.h"
#include "common/cost/operations/contraction.h"
#include "common/cost/operations/operands.h"
#include "common/cost/operations/recurrence.h"
#include "common/graph/aten.h"

namespace stagewright {
namespace {

// The product's inner dimension is the last of its left operand, which follows the addend in
// addmm and its kin.
double MatmulFlops(const Graph& graph, const Node& node, int64_t samples) {
  const std::string_view name = AtenName(node.target);
  const bool addend = name == "addmm" || name == "baddbmm" || name == "addbmm" || name == "addmv";
  const auto left = Operand(graph, node, addend ? 1 : 0);
  double products = OutputElements(node, samples);
  if (!left || left->shape.empty()) return products;
  // addbmm also sums over the batch of products.
  if (name == "addbmm") products *= static_cast<double>(left->shape.front().At(samples));
  return 2 * products * static_cast<double>(left->shape.back().At(samples));
}

bool IsTransposed(const Node& node) {
  if (AtenName(node.target).substr(0, 14) == "conv_transpose") return true;
  // Argument 6 of convolution(x, w, b, stride, padding, dilation, transposed, ..).
  if (node.args.size() <= 6) return false;
  const bool* transposed = std::get_if<bool>(&node.args[6].value);
  return transposed != nullptr && *transposed;
}

// Every output element (input element if transposed) meets one filter: a weight row without its
// first dimension, which holds channels per group and the kernel.
double ConvolutionFlops(const Graph& graph, const Node& node, int64_t samples) {
  const auto input = Operand(graph, node, 0);
  const auto weight = Operand(graph, node, 1);
  double elements = OutputElements(node, samples);
  if (!input || !weight || weight->shape.empty()) return elements;
  if (IsTransposed(node)) elements = Elements(*input, samples);
  double filter = 1;
  for (size_t i = 1; i < weight->shape.size(); ++i) {
    filter *= static_cast<double>(weight->shape[i].At(samples));
  }
  return 2 * elements * filter;
}

// Scores (queries x keys x width) and their product with the values (queries x keys x value width).
// A causal mask does not change the count: kernels differ in what they skip.
double AttentionFlops(const Graph& graph, const Node& node, int64_t samples) {
  const auto query = Operand(graph, node, 0);
  const auto key = Operand(graph, node, 1);
  const auto value = Operand(graph, node, 2);
  if (!query || !key || !value || query->shape.size() < 2 || key->shape.size() < 2 ||
      value->shape.empty()) {
    return OutputElements(node, samples);
  }
  const auto keys = static_cast<double>(key->shape[key->shape.size() - 2].At(samples));
  const auto width = static_cast<double>(query->shape.back().At(samples));
  const auto value_width = static_cast<double>(value->shape.back().At(samples));
  if (width <= 0) return 0;
  return 2 * Elements(*query, samples) / width * keys * (width + value_width);
}

}  // namespace

double ForwardFlops(const Graph& graph, NodeId id, int64_t samples) {
  const Node& node = graph.node(id);
  if (node.cost || samples <= 0) return 0;
  switch (KindOfTarget(node.target)) {
    case AtenKind::kView:
    case AtenKind::kEmbedding:
      return 0;
    case AtenKind::kMatmul:
      return MatmulFlops(graph, node, samples);
    case AtenKind::kConvolution:
      return ConvolutionFlops(graph, node, samples);
    case AtenKind::kAttention:
      return AttentionFlops(graph, node, samples);
    case AtenKind::kContraction:
      return ContractionFlops(graph, node, samples);
    case AtenKind::kRecurrent:
      return RecurrenceOf(graph, node, samples).flops();
    case AtenKind::kElementwise:
      return OutputElements(node, samples);
  }
  return 0;
}

}  // namespace stagewright
