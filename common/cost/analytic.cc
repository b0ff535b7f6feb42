// The analytic cost model: a roofline over the operator's floating-point operations and bytes.
//
//   forward  = overhead + max(ProductSeconds(w), bytes / bandwidth)     products, convolutions
//   forward  = overhead + max(w / (peak * e), bytes / bandwidth)        everything else
//
// A recurrent layer's products with its state wait for each other: each step is a product and a
// launch of its own.
//
// How much of the peak an operator reaches by its size only makes sense where work is tiled over
// the device's units. Bytes are those of all operands and results, once each, in the types that the
// precision takes them in; an operand that is cast is read and written once more, in a launch of
// its own, and so is its gradient. The backward pass of a product is one product per operand that
// needs a gradient; of anything else, as long as its forward pass. Where the kind adds gradients up
// by themselves, each gradient of a weight takes a launch, two reads and a write, and what is no
// product takes what automatic differentiation moves (backward_moves.h).
//
// Devices that are asynchronous compute while the host launches what follows: of a node's pass the
// longer of both counts, all its launches or all its kernels. That a queue also carries an excess
// of kernels over to the launches of the next node is left out: a pass takes at least the longer of
// both sums, and at most the sum of the longer ones. Products whose rows are unaligned
// (alignment.h) take as much longer as the kind says; TF32 is left alone, since nobody measured it.
#include "common/cost/analytic.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cost/backward_moves.h"
#include "common/cost/cost_model.h"
#include "common/cost/operations/alignment.h"
#include "common/cost/operations/flops.h"
#include "common/cost/operations/recurrence.h"
#include "common/cost/parameters.h"
#include "common/cost/retention.h"
#include "common/cost/typed_sizes.h"
#include "common/graph/aten.h"

namespace stagewright {
namespace {

constexpr Bytes kSixteenBits = 2;

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

// What of a graph's tensors outlives the node that makes or reads it.
struct Retention {
  Retention(const Graph& graph, Precision precision)
      : sizes(graph, precision),
        outputs(KeptOutputs(graph, precision)),
        inputs(KeepsInputs(graph, precision)) {}
  TypedSizes sizes;
  std::vector<std::vector<bool>> outputs;
  std::vector<bool> inputs;
};

// Copies of operands in another type, that the node keeps or has while it runs.
double OperandCopies(const Graph& graph, NodeId id, const Retention& kept, bool saved,
                     int64_t samples) {
  if (saved != (kept.inputs[id.index()] && NeedsItsInputs(graph, id))) return 0;
  double bytes = 0;
  kept.sizes.ForEachOperand(id, [&](const TypedSizes::Operand& operand) {
    if (operand.value && operand.cast())
      bytes += TypedSizes::Size(*operand.meta, operand.taken, samples);
  });
  return bytes;
}

// What is there while the node runs forward and not saved: of its results, operands and inputs.
double ForwardBytes(const Graph& graph, NodeId id, const Retention& kept, int64_t samples) {
  const Node& node = graph.node(id);
  double bytes = static_cast<double>(TemporaryBytes(graph, id, samples, false)) +
                 OperandCopies(graph, id, kept, /*saved=*/false, samples);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!kept.outputs[id.index()][i])
      bytes += kept.sizes.Result({id, static_cast<int32_t>(i)}, samples);
  }
  for (const ValueRef& value : graph.Values(id)) {
    const ValueRef storage = StorageOf(graph, value);
    if (KindOfTarget(graph.node(storage.node).target) == AtenKind::kView) continue;  // An input.
    if (kept.outputs[storage.node.index()][storage.output]) continue;
    bytes += kept.sizes.Result(storage, samples);
  }
  if (!kept.inputs[id.index()]) bytes += kept.sizes.Inputs(id, samples);
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
      bytes += kept.sizes.Result({id, static_cast<int32_t>(i)}, samples);
  }
  kept.sizes.ForEachOperand(id, [&](const TypedSizes::Operand& operand) {
    if (!operand.value || PassesGradientOn(node) || !graph.needs_backward(operand.value->node))
      return;
    if (IsFloating(operand.meta->dtype))
      bytes += TypedSizes::Size(*operand.meta, operand.comes, samples);
  });
  for (ParameterId p : graph.Parameters(id)) {
    const Parameter& parameter = graph.parameter(p);
    if (parameter.trainable) bytes += static_cast<double>(parameter.SizeBytes());
  }
  return bytes;
}

// Kernels that memory bounds, beside those of the operation itself: their launches, and the bytes
// that they read and write.
struct Traffic {
  int launches = 0;
  Quadratic bytes;

  // Moves (backward_moves.h) as a function of the samples.
  template <typename F>
  static Traffic Of(F&& moves) {
    return {moves(3).launches, Quadratic([&](int64_t s) { return moves(s).bytes; })};
  }
};

// What Time() and its kin need to know about one node.
struct NodeCost {
  AtenKind kind = AtenKind::kElementwise;
  ProductType type = ProductType::kFloat32;
  bool unaligned = false;
  Quadratic flops;  // A recurrent layer's products with its inputs alone.
  Quadratic steps;  // A recurrent layer's, one after another, and the operations of each.
  Quadratic step_flops;
  Quadratic bytes;  // Read and written by the forward pass.
  Quadratic saved;
  Quadratic forward_workspace, backward_workspace;
  double gradient_bytes = 0;  // Dense gradient of a gathered table, written whole.
  bool input_gradient = false;
  bool weight_gradient = false;
  int input_products = 0;       // Products in the input half of a product's backward pass.
  Traffic operands, gradients;  // Forward and in the input half.
  Traffic weights;              // Gradients of weights, in the weight half.
  Traffic sums;                 // Gradients of weights that are added up, in the weight half.
  // What else automatic differentiation moves, where the kind has that.
  Traffic scratch, input_moves, weight_moves;
  std::optional<ProfiledCost> profiled;
};

ProductKind ProductKindOf(AtenKind kind) {
  if (kind == AtenKind::kConvolution) return ProductKind::kConvolution;
  return kind == AtenKind::kAttention ? ProductKind::kAttention : ProductKind::kMatmul;
}

// LibTorch lets cuDNN's convolutions in float32 use TF32, and no other product.
ProductType ProductTypeOf(AtenKind kind, DType dtype) {
  if (dtype == DType::kBFloat16) return ProductType::kBFloat16;
  if (dtype == DType::kFloat16) return ProductType::kFloat16;
  const bool tf32 = kind == AtenKind::kConvolution && dtype == DType::kFloat32;
  return tf32 ? ProductType::kTF32 : ProductType::kFloat32;
}

bool HasSixteenBits(ProductType type) {
  return type == ProductType::kBFloat16 || type == ProductType::kFloat16;
}

Nanos InNanos(double seconds) { return Nanos(Saturate(std::ceil(seconds * 1e9))); }

// What a pass of a node asks of the host, which launches, and of the device, which computes.
struct Work {
  Nanos launches = 0, kernels = 0;

  void Add(const Work& other, int times = 1) {
    launches += times * other.launches;
    kernels += times * other.kernels;
  }
  void Add(const Traffic& traffic, const DeviceKind& kind, double samples) {
    if (traffic.launches == 0) return;
    launches += traffic.launches * kind.kernel_overhead;
    kernels += InNanos(traffic.bytes.At(samples) / kind.memory_bytes_per_second);
  }
  Nanos Time(const DeviceKind& kind) const {
    return kind.asynchronous ? std::max(launches, kernels) : launches + kernels;
  }
};

class AnalyticCostModel : public CostModel {
 public:
  AnalyticCostModel(const Graph& graph, Precision precision) : precision_(precision) {
    const Retention kept(graph, precision);
    const std::vector<std::vector<int32_t>> gradients = GradientsOfValues(graph);
    nodes_.reserve(graph.size());
    for (int32_t v = 0; v < graph.size(); ++v) {
      nodes_.push_back(Measure(graph, NodeId(v), kept, gradients[v]));
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
    Work forward, input, weight;
    if (node.kind != AtenKind::kView) Operate(node, kind, n, forward, input, weight);
    if (kind.adds_gradients) {
      forward.Add(node.scratch, kind, n);
      input.Add(node.input_moves, kind, n);
      weight.Add(node.weight_moves, kind, n);
      weight.Add(node.sums, kind, n);
    }
    time.forward = forward.Time(kind);
    time.backward_input = input.Time(kind);
    time.backward_weight = weight.Time(kind);
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

  Precision precision() const override { return precision_; }

  std::string Description() const override {
    std::string text = "analytic roofline";
    if (IsMixed(precision_)) absl::StrAppend(&text, ", ", NameIn(kPrecisionNames, precision_));
    return text;
  }

 private:
  // The operation and its derivatives, with casts.
  static void Operate(const NodeCost& node, const DeviceKind& kind, double n, Work& forward,
                      Work& input, Work& weight) {
    const Work once = Once(node, kind, n);
    forward = once;
    forward.Add(node.operands, kind, n);
    if (IsMatmulLike(node.kind)) {
      input.Add(once, node.input_products);
      if (node.weight_gradient) weight.Add(once);
    } else if (node.kind == AtenKind::kEmbedding) {
      if (node.weight_gradient) {
        weight.Add(once);
        weight.kernels += Nanos(Saturate(node.gradient_bytes / kind.memory_bytes_per_second * 1e9));
      }
    } else if (!kind.adds_gradients) {  // Else it is among the moves.
      if (node.input_gradient) {
        input.Add(once);
      } else if (node.weight_gradient) {
        weight.Add(once);
      }
    }
    input.Add(node.gradients, kind, n);
    weight.Add(node.weights, kind, n);
  }

  // The node's own operation, as its forward pass does it.
  static Work Once(const NodeCost& node, const DeviceKind& kind, double samples) {
    const double flops = node.flops.At(samples);
    double work = flops / (kind.flops_per_second * kPeakShare);
    if (IsMatmulLike(node.kind))
      work = ProductSeconds(kind, ProductKindOf(node.kind), node.type, flops);
    const double steps = node.steps.At(samples);
    if (steps > 0) {
      work += steps *
              ProductSeconds(kind, ProductKind::kMatmul, node.type, node.step_flops.At(samples));
    }
    if (node.unaligned) work *= kind.unaligned_slowdown;
    const double traffic = node.bytes.At(samples) / kind.memory_bytes_per_second;
    const auto launches = static_cast<double>(kind.kernel_overhead) * (1 + steps);
    return {Nanos(Saturate(launches)), InNanos(std::max(work, traffic))};
  }

  static Bytes At(const Quadratic& bytes, int64_t samples) {
    if (samples <= 0) return 0;
    return Bytes(Saturate(std::ceil(bytes.At(static_cast<double>(samples)))));
  }

  static NodeCost Measure(const Graph& graph, NodeId id, const Retention& kept,
                          const std::vector<int32_t>& gradients) {
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
    if (cost.kind == AtenKind::kRecurrent) {
      const auto at = [&](int64_t s) { return RecurrenceOf(graph, node, s); };
      cost.flops = Quadratic([&](int64_t s) { return at(s).input_flops; });
      cost.steps = Quadratic([&](int64_t s) { return at(s).steps; });
      cost.step_flops = Quadratic([&](int64_t s) { return at(s).step_flops; });
    } else {
      cost.flops = Quadratic([&](int64_t s) { return ForwardFlops(graph, id, s); });
    }
    cost.saved = Quadratic([&](int64_t s) { return Saved(graph, id, kept, s); });
    const auto backward = [&](int64_t s) {
      return MovesOfBackward(graph, id, kept.sizes, gradients, s);
    };
    cost.input_moves = Traffic::Of([&](int64_t s) { return backward(s).input; });
    cost.weight_moves = Traffic::Of([&](int64_t s) { return backward(s).weight; });
    if (cost.kind == AtenKind::kView) return cost;
    cost.scratch = Traffic::Of([&](int64_t s) { return MovesOfForward(graph, id, s); });
    const bool gather = cost.kind == AtenKind::kEmbedding;
    const TypedSizes& sizes = kept.sizes;
    if (!node.outputs.empty()) cost.type = ProductTypeOf(cost.kind, sizes.ResultType({id, 0}));
    cost.unaligned = HasSixteenBits(cost.type) && HasUnalignedRows(graph, id, kSixteenBits);
    cost.bytes = Quadratic([&](int64_t s) {
      double operands = 0;
      sizes.ForEachOperand(id, [&](const TypedSizes::Operand& operand) {
        operands += TypedSizes::Size(*operand.meta, operand.taken, s);
      });
      const double results = sizes.Results(id, s);
      return operands + (gather ? 2 * results : sizes.Parameters(id) + results);
    });
    cost.forward_workspace = Quadratic([&](int64_t s) { return ForwardBytes(graph, id, kept, s); });
    cost.backward_workspace =
        Quadratic([&](int64_t s) { return BackwardBytes(graph, id, kept, s); });
    Differentiate(graph, id, cost);
    if (sizes.mixed()) MeasureCasts(graph, id, sizes, cost);
    return cost;
  }

  static void MeasureCasts(const Graph& graph, NodeId id, const TypedSizes& sizes, NodeCost& cost) {
    const auto bytes_of = [&](bool gradients, int64_t s) {
      double bytes = 0;
      sizes.ForEachOperand(id, [&](const TypedSizes::Operand& operand) {
        if (!operand.cast() || (gradients && !Flows(graph, id, operand))) return;
        bytes += TypedSizes::Size(*operand.meta, operand.comes, s) +
                 TypedSizes::Size(*operand.meta, operand.taken, s);
      });
      return bytes;
    };
    cost.operands.bytes = Quadratic([&](int64_t s) { return bytes_of(false, s); });
    cost.gradients.bytes = Quadratic([&](int64_t s) { return bytes_of(true, s); });
    sizes.ForEachOperand(id, [&](const TypedSizes::Operand& operand) {
      if (operand.cast()) ++cost.operands.launches;
      if (operand.cast() && Flows(graph, id, operand)) ++cost.gradients.launches;
    });
    double weights = 0;
    for (ParameterId p : graph.Parameters(id)) {
      const Parameter& parameter = graph.parameter(p);
      const double taken = sizes.Taken(id, parameter);
      const auto own = static_cast<double>(parameter.SizeBytes());
      if (taken == own || !parameter.trainable) continue;
      weights += taken + own;
      ++cost.weights.launches;
    }
    cost.weights.bytes = Quadratic([&](int64_t) { return weights; });
  }

  static bool Flows(const Graph& graph, NodeId id, const TypedSizes::Operand& operand) {
    return operand.value && graph.needs_backward(id) && graph.needs_backward(operand.value->node);
  }

  static double Saved(const Graph& graph, NodeId id, const Retention& retention, int64_t s) {
    const std::vector<bool>& kept = retention.outputs[id.index()];
    double bytes = retention.inputs[id.index()] ? retention.sizes.Inputs(id, s) : 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) bytes += retention.sizes.Result({id, static_cast<int32_t>(i)}, s);
    }
    bytes += OperandCopies(graph, id, retention, /*saved=*/true, s);
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
    // Two operands of a product; attention's three share twice its own two products; a recurrent
    // layer's gradient goes back through its states, whoever wants it.
    const bool attention = cost.kind == AtenKind::kAttention && cost.input_gradient;
    cost.input_products = attention ? 2 : std::min(cost.input_products, 2);
    if (cost.kind == AtenKind::kRecurrent) cost.input_products = 1;
    double sums = 0;
    for (ParameterId p : graph.Parameters(id)) {
      if (!graph.parameter(p).trainable) continue;
      cost.weight_gradient = true;
      // Two are read, one is written.
      sums += 3 * static_cast<double>(graph.parameter(p).SizeBytes());
      ++cost.sums.launches;
      if (cost.kind == AtenKind::kEmbedding) {
        cost.gradient_bytes += static_cast<double>(graph.parameter(p).SizeBytes());
      }
    }
    cost.sums.bytes = Quadratic([&](int64_t) { return sums; });
  }

  const Precision precision_;
  std::vector<NodeCost> nodes_;
};

}  // namespace

std::unique_ptr<CostModel> MakeAnalyticCostModel(const Graph& graph, Precision precision) {
  return std::make_unique<AnalyticCostModel>(graph, precision);
}

}  // namespace stagewright
