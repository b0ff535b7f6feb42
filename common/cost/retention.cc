#include "common/cost/retention.h"

#include <algorithm>
#include <array>

#include "common/cost/operations/recurrence.h"
#include "common/graph/aten.h"
#include "common/training/autocast.h"

namespace stagewright {
namespace {

struct Need {
  bool inputs = true;
  bool outputs = true;
};

template <size_t N>
bool Contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Linear maps with constant coefficients.
constexpr std::array<std::string_view, 30> kNeedNothing = {"add",
                                                           "sub",
                                                           "rsub",
                                                           "neg",
                                                           "sum",
                                                           "mean",
                                                           "cat",
                                                           "stack",
                                                           "clone",
                                                           "roll",
                                                           "copy",
                                                           "contiguous",
                                                           "flip",
                                                           "_to_copy",
                                                           "to",
                                                           "repeat",
                                                           "pad",
                                                           "where",
                                                           "tril",
                                                           "triu",
                                                           "cumsum",
                                                           "constant_pad_nd",
                                                           "concat",
                                                           "dropout",
                                                           "avg_pool2d",
                                                           "_adaptive_avg_pool2d",
                                                           "adaptive_avg_pool2d",
                                                           "masked_fill",
                                                           "feature_dropout",
                                                           "native_dropout"};
constexpr std::array<std::string_view, 12> kNeedOutputs = {
    "relu", "softmax", "_softmax", "log_softmax", "_log_softmax", "sigmoid",
    "tanh", "exp",     "sqrt",     "rsqrt",       "reciprocal",   "relu_"};
constexpr std::array<std::string_view, 22> kNeedInputs = {"gelu",
                                                          "silu",
                                                          "layer_norm",
                                                          "native_layer_norm",
                                                          "batch_norm",
                                                          "group_norm",
                                                          "mul",
                                                          "pow",
                                                          "mse_loss",
                                                          "leaky_relu",
                                                          "elu",
                                                          "hardtanh",
                                                          "log",
                                                          "sin",
                                                          "cos",
                                                          "softplus",
                                                          "abs",
                                                          "rms_norm",
                                                          "max_pool2d",
                                                          "clamp",
                                                          "cross_entropy_loss",
                                                          "native_group_norm"};

Need NeedOf(const Graph& graph, NodeId id) {
  const std::string& target = graph.node(id).target;
  const auto parameters = graph.Parameters(id);
  switch (KindOfTarget(target)) {
    case AtenKind::kView:
      return {false, false};
    case AtenKind::kMatmul:
    case AtenKind::kContraction:
    case AtenKind::kConvolution:
      // An operand is kept for the gradient of the other one; a frozen weight has none.
      return {graph.Values(id).size() > 1 ||
                  std::any_of(parameters.begin(), parameters.end(),
                              [&](ParameterId p) { return graph.parameter(p).trainable; }),
              false};
    case AtenKind::kEmbedding:
      return {true, false};
    case AtenKind::kAttention:
      return {true, true};
    case AtenKind::kRecurrent:  // A copy of the result is among what is hidden.
      return {true, false};
    case AtenKind::kElementwise:
      break;
  }
  const std::string_view name = AtenName(target);
  if (Contains(kNeedNothing, name)) return {false, false};
  if (Contains(kNeedOutputs, name)) return {false, true};
  if (Contains(kNeedInputs, name)) return {true, false};
  return {true, true};
}

struct Kept {
  std::vector<std::vector<bool>> outputs;
  std::vector<bool> inputs;
};

Kept WhatIsKept(const Graph& graph, Precision precision) {
  const GraphTypes types = IsMixed(precision) ? TypesOfGraph(graph, precision) : GraphTypes{};
  Kept result;
  std::vector<std::vector<bool>>& kept = result.outputs;
  kept.resize(graph.size());
  result.inputs.resize(graph.size());
  for (int32_t v = 0; v < graph.size(); ++v) {
    kept[v].assign(graph.node(NodeId(v)).outputs.size(), false);
  }
  // Readers first, so that a view knows whether its own readers need it.
  const auto& order = graph.dag().order();
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const NodeId id(*it);
    const Node& node = graph.node(id);
    const bool is_view = KindOfTarget(node.target) == AtenKind::kView;
    const bool view_is_needed =
        is_view && std::find(kept[*it].begin(), kept[*it].end(), true) != kept[*it].end();
    const Need need = NeedOf(graph, id);
    const bool backward = graph.needs_backward(id) && !node.cost;
    if (view_is_needed || (backward && need.inputs)) {
      result.inputs[*it] = true;
      const auto values = graph.Values(id);
      for (size_t i = 0; i < values.size(); ++i) {
        const bool cast = !types.nodes.empty() && !types.values[*it].empty() &&
                          types.nodes[*it].operands[i] != types.values[*it][i];
        if (!cast) kept[values[i].node.index()][values[i].output] = true;
      }
    }
    if (is_view) {
      kept[*it].assign(kept[*it].size(), false);
    } else if (backward) {
      for (size_t i = 0; i < kept[*it].size(); ++i) {
        if (need.outputs || i > 0) kept[*it][i] = true;
      }
    }
  }
  return result;
}

}  // namespace

std::vector<std::vector<bool>> KeptOutputs(const Graph& graph, Precision precision) {
  return WhatIsKept(graph, precision).outputs;
}

std::vector<bool> KeepsInputs(const Graph& graph, Precision precision) {
  return WhatIsKept(graph, precision).inputs;
}

bool NeedsItsOutputs(const Graph& graph, NodeId node) { return NeedOf(graph, node).outputs; }

bool NeedsItsInputs(const Graph& graph, NodeId node) { return NeedOf(graph, node).inputs; }

bool PassesGradientOn(const Node& node) {
  const std::string_view name = AtenName(node.target);
  return name == "add" || name == "cat" || name == "concat" || name == "sum";
}

Bytes TemporaryBytes(const Graph& graph, NodeId id, int64_t samples, bool backward) {
  const std::string_view name = AtenName(graph.node(id).target);
  const int64_t copies = name == "cross_entropy_loss" ? 1 : name == "mse_loss" && !backward ? 2 : 0;
  if (copies == 0 || graph.Values(id).empty()) return 0;
  return copies * graph.meta(graph.Values(id).front()).SizeBytes(samples);
}

ValueRef StorageOf(const Graph& graph, ValueRef value) {
  while (KindOfTarget(graph.node(value.node).target) == AtenKind::kView &&
         !graph.Values(value.node).empty()) {
    value = graph.Values(value.node).front();
  }
  return value;
}

Bytes HiddenBytes(const Graph& graph, NodeId id, int64_t samples) {
  const Node& node = graph.node(id);
  if (!graph.needs_backward(id) || node.outputs.empty()) return 0;
  const TensorMeta& output = node.outputs[0];
  const std::string_view name = AtenName(node.target);
  if (KindOfTarget(node.target) == AtenKind::kRecurrent) {
    const double saved = RecurrenceOf(graph, node, samples).saved_elements;
    constexpr double kMost = 1e17;  // So that no sum of them overflows.
    return static_cast<int64_t>(saved < kMost ? saved : kMost) * SizeOf(output.dtype);
  }
  if (name == "dropout" || name == "feature_dropout") return Bytes(output.Elements(samples));
  if (name == "cross_entropy_loss") return SizeOf(output.dtype);
  if (name == "max_pool2d") return output.Elements(samples) * SizeOf(DType::kInt64);
  const bool norm = name == "layer_norm";
  if (!(norm || name == "scaled_dot_product_attention") || output.shape.empty()) return 0;
  const Bytes wide = std::max<Bytes>(SizeOf(output.dtype), SizeOf(DType::kFloat32));
  const TensorMeta row{output.dtype, {output.shape.back()}};
  return output.Elements(samples) / std::max<int64_t>(row.Elements(samples), 1) * wide *
         (norm ? 2 : 1);
}

}  // namespace stagewright
