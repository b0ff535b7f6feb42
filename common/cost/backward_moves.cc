#include "common/cost/backward_moves.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/cost/retention.h"
#include "common/graph/aten.h"

namespace stagewright {
namespace {

using Names = std::initializer_list<std::string_view>;

bool IsOneOf(std::string_view name, Names names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsNorm(std::string_view name) {
  return IsOneOf(name, {"layer_norm", "native_layer_norm", "rms_norm", "group_norm",
                        "native_group_norm", "batch_norm"});
}

// Whether a tensor has fewer elements than another. By one number of samples for all, so that bytes
// stay polynomials in their number: a row is as large as a batch of one.
bool IsSmaller(const TensorMeta& tensor, const TensorMeta& than) {
  constexpr int64_t kSeveral = 3;
  return tensor.Elements(kSeveral) < than.Elements(kSeveral);
}

bool Flows(const Graph& graph, ValueRef value) {
  return graph.needs_backward(value.node) && IsFloating(graph.meta(value).dtype);
}

// The gradient of the result.
double ResultBytes(const Graph& graph, NodeId id, const TypedSizes& sizes, int64_t samples) {
  double bytes = 0;
  for (size_t i = 0; i < graph.node(id).outputs.size(); ++i) {
    const ValueRef value{id, static_cast<int32_t>(i)};
    if (IsFloating(graph.meta(value).dtype)) bytes += sizes.Result(value, samples);
  }
  return bytes;
}

// What the forward pass kept for the node's own backward pass.
double SavedBytes(const Graph& graph, NodeId id, const TypedSizes& sizes, int64_t samples) {
  auto bytes = static_cast<double>(HiddenBytes(graph, id, samples));
  if (NeedsItsOutputs(graph, id)) bytes += sizes.Results(id, samples);
  if (!NeedsItsInputs(graph, id)) return bytes;
  sizes.ForEachOperand(id, [&](const TypedSizes::Operand& operand) {
    bytes += TypedSizes::Size(*operand.meta, operand.taken, samples);
  });
  return bytes;
}

void AddUp(const Graph& graph, NodeId id, const TypedSizes& sizes,
           const std::vector<int32_t>& gradients, int64_t samples, Moves& input) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int32_t more = gradients[i] - 1;
    if (more < 1) continue;
    input.Add(3.0 * more * sizes.Result({id, static_cast<int32_t>(i)}, samples), more);
  }
}

void TakeApart(const Graph& graph, NodeId id, const TypedSizes& sizes, int64_t samples,
               Moves& input) {
  const std::string_view name = AtenName(graph.node(id).target);
  const double result = ResultBytes(graph, id, sizes, samples);
  const auto values = graph.Values(id);
  if (values.empty() || !Flows(graph, values.front())) return;
  const double operand = sizes.Result(values.front(), samples);
  const TensorMeta& from = graph.meta(values.front());
  const TensorMeta& to = graph.node(id).outputs[0];
  if (IsOneOf(name, {"unbind", "split", "chunk", "split_with_sizes", "tensor_split"})) {
    input.Add(result + operand);
  } else if (IsOneOf(name, {"select", "slice", "narrow", "diagonal"}) && IsSmaller(to, from)) {
    input.Add(operand);     // Zeros.
    input.Add(2 * result);  // What goes between them.
  } else if (IsSmaller(from, to)) {
    input.Add(result + operand);  // Expanded: a sum.
  }
}

// Gradients of the parameters of what is neither a product nor a gather.
void DifferentiateParameters(const Graph& graph, NodeId id, double gradient, double saved,
                             Moves& weight) {
  const Node& node = graph.node(id);
  double parameters = 0;
  int count = 0;
  for (ParameterId p : graph.Parameters(id)) {
    if (!graph.parameter(p).trainable) continue;
    parameters += static_cast<double>(graph.parameter(p).SizeBytes());
    ++count;
  }
  if (count == 0) return;
  if (IsNorm(AtenName(node.target))) {
    weight.Add(gradient + saved + parameters);
  } else if (PassesGradientOn(node)) {
    weight.Add(count * gradient + parameters, count);
  } else {  // As many numbers as the result has, and their sum over what was broadcast.
    weight.Add(count * (2 * gradient + saved), count);
    weight.Add(count * gradient + parameters, count);
  }
}

void DifferentiateOperands(const Graph& graph, NodeId id, const TypedSizes& sizes, double gradient,
                           double saved, int64_t samples, Moves& input) {
  const Node& node = graph.node(id);
  const std::string_view name = AtenName(node.target);
  const bool passes = PassesGradientOn(node);
  bool first = true;
  for (const ValueRef& value : graph.Values(id)) {
    if (!Flows(graph, value)) continue;
    const double own = sizes.Result(value, samples);
    const bool broadcast = name == "add" && IsSmaller(graph.meta(value), node.outputs[0]);
    if (broadcast) {
      input.Add(gradient + own);
    } else if (!passes) {
      input.Add(gradient + own + (first ? saved : 0));
      first = false;
    }
  }
  // A cross-entropy's softmax has a gradient of its own.
  const auto between = static_cast<double>(TemporaryBytes(graph, id, samples, /*backward=*/true));
  if (between > 0) input.Add(2 * between);
}

}  // namespace

std::vector<std::vector<int32_t>> GradientsOfValues(const Graph& graph) {
  std::vector<std::vector<int32_t>> gradients(graph.size());
  for (int32_t v = 0; v < graph.size(); ++v) {
    gradients[v].assign(graph.node(NodeId(v)).outputs.size(), 0);
  }
  for (int32_t v = 0; v < graph.size(); ++v) {
    if (!graph.needs_backward(NodeId(v))) continue;
    for (const ValueRef& value : graph.Values(NodeId(v))) {
      if (Flows(graph, value)) ++gradients[value.node.index()][value.output];
    }
  }
  return gradients;
}

Moves MovesOfForward(const Graph& graph, NodeId id, int64_t samples) {
  Moves moves;
  const auto between = static_cast<double>(TemporaryBytes(graph, id, samples, /*backward=*/false));
  if (between > 0) moves.Add(2 * between);
  return moves;
}

BackwardMoves MovesOfBackward(const Graph& graph, NodeId id, const TypedSizes& sizes,
                              const std::vector<int32_t>& gradients, int64_t samples) {
  BackwardMoves moves;
  const Node& node = graph.node(id);
  if (!graph.needs_backward(id)) return moves;
  AddUp(graph, id, sizes, gradients, samples, moves.input);
  const double gradient = ResultBytes(graph, id, sizes, samples);
  switch (KindOfTarget(node.target)) {
    case AtenKind::kView:
      TakeApart(graph, id, sizes, samples, moves.input);
      break;
    case AtenKind::kMatmul:
    case AtenKind::kContraction:
    case AtenKind::kConvolution:
    case AtenKind::kRecurrent:
      for (ParameterId p : graph.Parameters(id)) {
        const Parameter& parameter = graph.parameter(p);
        if (parameter.trainable && parameter.shape.size() == 1) {
          moves.weight.Add(gradient + static_cast<double>(parameter.SizeBytes()));
        }
      }
      break;
    case AtenKind::kAttention:
    case AtenKind::kEmbedding:
      break;
    case AtenKind::kElementwise: {
      const double saved = SavedBytes(graph, id, sizes, samples);
      DifferentiateOperands(graph, id, sizes, gradient, saved, samples, moves.input);
      DifferentiateParameters(graph, id, gradient, saved, moves.weight);
      break;
    }
  }
  return moves;
}

}  // namespace stagewright
