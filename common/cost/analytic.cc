// The analytic cost model: a roofline over the operator's floating-point operations and bytes.
//
//   forward  = overhead + max((w + half) / (peak * e), bytes / bandwidth)   products, convolutions
//   forward  = overhead + max(w / (peak * e), bytes / bandwidth)            everything else
//
// which is the header's formula: w / (peak * e * w / (w + half)). The half-efficiency term only
// makes sense where work is tiled over the device's units. Bytes are those of all operands and
// results, once each. The backward pass of a product is one product per operand that needs a
// gradient; of anything else, as long as its forward pass.
#include "common/cost/analytic.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "common/cost/cost_model.h"
#include "common/cost/flops.h"
#include "common/cost/retention.h"
#include "common/graph/aten.h"

namespace stagewright {
namespace {

// Answers saturate here (about 36 years, 1 EiB), so that sums cannot overflow.
constexpr double kLargest = 1.15e18;

int64_t Saturate(double value) { return static_cast<int64_t>(std::min(value, kLargest)); }

// A quantity that is at most quadratic in the samples (sizes are products of dimensions affine in
// them), from its values at 1, 2 and 3.
class Quadratic {
 public:
  Quadratic() = default;
  template <typename F>
  explicit Quadratic(F&& at) {
    const double a = at(1), b = at(2), c = at(3);
    first_ = a;
    step_ = b - a;
    bend_ = (c - b) - (b - a);
  }
  double At(double samples) const {
    const double d = samples - 1;
    return first_ + d * (step_ + (d - 1) / 2 * bend_);
  }

 private:
  double first_ = 0, step_ = 0, bend_ = 0;
};

double OutputBytes(const Node& node, int64_t samples) {
  double bytes = 0;
  for (const TensorMeta& meta : node.outputs) {
    bytes += static_cast<double>(meta.SizeBytes(samples));
  }
  return bytes;
}

double OperandBytes(const Graph& graph, NodeId id, int64_t samples) {
  double bytes = 0;
  for (const ValueRef& value : graph.Values(id)) {
    bytes += static_cast<double>(graph.meta(value).SizeBytes(samples));
  }
  for (InputId input : graph.Inputs(id)) {
    bytes += static_cast<double>(graph.input(input).meta.SizeBytes(samples));
  }
  return bytes;
}

double ParameterBytes(const Graph& graph, NodeId id) {
  double bytes = 0;
  for (ParameterId p : graph.Parameters(id)) {
    bytes += static_cast<double>(graph.parameter(p).SizeBytes());
  }
  return bytes;
}

// What of a graph's tensors outlives the node that makes or reads it.
struct Retention {
  explicit Retention(const Graph& graph)
      : outputs(KeptOutputs(graph)), inputs(KeepsInputs(graph)) {}
  std::vector<std::vector<bool>> outputs;
  std::vector<bool> inputs;
};

double InputBytes(const Graph& graph, NodeId id, int64_t samples) {
  double bytes = 0;
  for (InputId input : graph.Inputs(id))
    bytes += static_cast<double>(graph.input(input).meta.SizeBytes(samples));
  return bytes;
}

// What is there while the node runs forward and not saved: of its results, operands and inputs.
double ForwardBytes(const Graph& graph, NodeId id, const Retention& kept, int64_t samples) {
  const Node& node = graph.node(id);
  double bytes = static_cast<double>(TemporaryBytes(graph, id, samples, false));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!kept.outputs[id.index()][i])
      bytes += static_cast<double>(node.outputs[i].SizeBytes(samples));
  }
  for (const ValueRef& value : graph.Values(id)) {
    const ValueRef storage = StorageOf(graph, value);
    if (KindOfTarget(graph.node(storage.node).target) == AtenKind::kView) continue;  // An input.
    if (kept.outputs[storage.node.index()][storage.output]) continue;
    bytes += static_cast<double>(graph.meta(storage).SizeBytes(samples));
  }
  if (!kept.inputs[id.index()]) bytes += InputBytes(graph, id, samples);
  return bytes;
}

// What is there while the node runs backward and not saved: gradients of its results, of its
// operands and of its parameters, the last before they are added to those of other micro-batches.
// Results that only readers needed are gone by then.
double BackwardBytes(const Graph& graph, NodeId id, const Retention& kept, int64_t samples) {
  if (!graph.needs_backward(id)) return 0;
  const Node& node = graph.node(id);
  double bytes = static_cast<double>(TemporaryBytes(graph, id, samples, true));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const bool gone = kept.outputs[id.index()][i] && i == 0 && !NeedsItsOutputs(graph, id);
    if (!gone && IsFloating(node.outputs[i].dtype))
      bytes += static_cast<double>(node.outputs[i].SizeBytes(samples));
  }
  for (const ValueRef& value : graph.Values(id)) {
    if (PassesGradientOn(node) || !graph.needs_backward(value.node)) continue;
    if (IsFloating(graph.meta(value).dtype))
      bytes += static_cast<double>(graph.meta(value).SizeBytes(samples));
  }
  for (ParameterId p : graph.Parameters(id)) {
    if (graph.parameter(p).trainable) bytes += static_cast<double>(graph.parameter(p).SizeBytes());
  }
  return bytes;
}

// What Time() and its kin need to know about one node.
struct NodeCost {
  AtenKind kind = AtenKind::kElementwise;
  Quadratic flops;
  Quadratic bytes;  // Read and written by the forward pass.
  Quadratic saved;
  Quadratic forward_workspace, backward_workspace;
  double gradient_bytes = 0;  // Dense gradient of a gathered table, written whole.
  bool input_gradient = false;
  bool weight_gradient = false;
  int input_products = 0;  // Products in the input half of a product's backward pass.
  std::optional<ProfiledCost> profiled;
};

class AnalyticCostModel : public CostModel {
 public:
  explicit AnalyticCostModel(const Graph& graph) {
    const Retention kept(graph);
    nodes_.reserve(graph.size());
    for (int32_t v = 0; v < graph.size(); ++v) {
      nodes_.push_back(Measure(graph, NodeId(v), kept));
    }
  }

  OperatorTime Time(NodeId id, const DeviceKind& kind, int64_t samples) const override {
    const NodeCost& node = nodes_[id.index()];
    OperatorTime time;
    if (samples <= 0) return time;
    const auto n = static_cast<double>(samples);
    if (node.profiled) {
      const double scale = n / static_cast<double>(node.profiled->samples);
      time.forward =
          Nanos(Saturate(std::round(static_cast<double>(node.profiled->forward) * scale)));
      time.backward =
          Nanos(Saturate(std::round(static_cast<double>(node.profiled->backward) * scale)));
      time.backward_weight = node.profiled->parameter_bytes > 0 ? time.backward / 2 : 0;
      time.backward_input = time.backward - time.backward_weight;
      return time;
    }
    if (node.kind == AtenKind::kView) return time;
    const bool tiled = IsMatmulLike(node.kind);
    const double work = (node.flops.At(n) + (tiled ? kind.half_efficiency_flops : 0)) /
                        (kind.flops_per_second * kPeakShare);
    const double traffic = node.bytes.At(n) / kind.memory_bytes_per_second;
    const Nanos once =
        kind.kernel_overhead + Nanos(Saturate(std::ceil(std::max(work, traffic) * 1e9)));
    time.forward = once;
    if (tiled) {
      time.backward_input = node.input_products * once;
      if (node.weight_gradient) time.backward_weight = once;
    } else if (node.kind == AtenKind::kEmbedding) {
      if (node.weight_gradient) {
        time.backward_weight =
            once + Nanos(Saturate(node.gradient_bytes / kind.memory_bytes_per_second * 1e9));
      }
    } else if (node.input_gradient) {
      time.backward_input = once;
    } else if (node.weight_gradient) {
      time.backward_weight = once;
    }
    time.backward = time.backward_input + time.backward_weight;
    return time;
  }

  Bytes SavedBytes(NodeId node, int64_t samples) const override {
    return At(nodes_[node.index()].saved, samples);
  }

  Bytes WorkspaceBytes(NodeId node, int64_t samples) const override {
    const NodeCost& cost = nodes_[node.index()];
    return std::max(At(cost.forward_workspace, samples), At(cost.backward_workspace, samples));
  }

  std::string Description() const override {
    return absl::StrFormat("analytic roofline at %.0f %% of peak", kPeakShare * 100);
  }

 private:
  static Bytes At(const Quadratic& bytes, int64_t samples) {
    if (samples <= 0) return 0;
    return Bytes(Saturate(std::ceil(bytes.At(static_cast<double>(samples)))));
  }

  static NodeCost Measure(const Graph& graph, NodeId id, const Retention& kept) {
    const Node& node = graph.node(id);
    NodeCost cost;
    cost.profiled = node.cost;
    if (node.cost) {
      const double per_sample =
          static_cast<double>(node.cost->saved_bytes.value_or(node.cost->activation_bytes)) /
          static_cast<double>(node.cost->samples);
      cost.saved = Quadratic([&](int64_t s) { return per_sample * static_cast<double>(s); });
      return cost;
    }
    cost.kind = KindOfTarget(node.target);
    cost.flops = Quadratic([&](int64_t s) { return ForwardFlops(graph, id, s); });
    cost.saved = Quadratic([&](int64_t s) { return Saved(graph, id, kept, s); });
    if (cost.kind == AtenKind::kView) return cost;
    const bool gather = cost.kind == AtenKind::kEmbedding;
    cost.bytes = Quadratic([&](int64_t s) {
      return OperandBytes(graph, id, s) +
             (gather ? 2 * OutputBytes(node, s) : ParameterBytes(graph, id) + OutputBytes(node, s));
    });
    cost.forward_workspace = Quadratic([&](int64_t s) { return ForwardBytes(graph, id, kept, s); });
    cost.backward_workspace =
        Quadratic([&](int64_t s) { return BackwardBytes(graph, id, kept, s); });
    Differentiate(graph, id, cost);
    return cost;
  }

  static double Saved(const Graph& graph, NodeId id, const Retention& retention, int64_t s) {
    const Node& node = graph.node(id);
    const std::vector<bool>& kept = retention.outputs[id.index()];
    double bytes = retention.inputs[id.index()] ? InputBytes(graph, id, s) : 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) bytes += static_cast<double>(node.outputs[i].SizeBytes(s));
    }
    bytes += static_cast<double>(HiddenBytes(graph, id, s));
    return bytes;
  }

  static void Differentiate(const Graph& graph, NodeId id, NodeCost& cost) {
    if (!graph.needs_backward(id)) return;
    ForEachLeaf(graph.node(id), [&](const Argument& leaf) {
      const auto* value = std::get_if<ValueRef>(&leaf.value);
      if (value == nullptr || !graph.needs_backward(value->node)) return;
      if (!IsFloating(graph.meta(*value).dtype)) return;
      cost.input_gradient = true;
      ++cost.input_products;
    });
    // Two operands of a product; attention's three share twice its own two products.
    const bool attention = cost.kind == AtenKind::kAttention && cost.input_gradient;
    cost.input_products = attention ? 2 : std::min(cost.input_products, 2);
    for (ParameterId p : graph.Parameters(id)) {
      if (!graph.parameter(p).trainable) continue;
      cost.weight_gradient = true;
      if (cost.kind == AtenKind::kEmbedding) {
        cost.gradient_bytes += static_cast<double>(graph.parameter(p).SizeBytes());
      }
    }
  }

  std::vector<NodeCost> nodes_;
};

}  // namespace

std::unique_ptr<CostModel> MakeAnalyticCostModel(const Graph& graph) {
  return std::make_unique<AnalyticCostModel>(graph);
}

}  // namespace stagewright
