// Sizes of tensors in the types that a precision gives them.
#pragma once

#include <cstdint>
#include <optional>

#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "common/training/autocast.h"
#include "common/training/precision.h"

namespace stagewright {

// Bytes of what nodes read and make, in the types that they come in and are taken in. The graph
// must outlive it.
class TypedSizes {
 public:
  TypedSizes(const Graph& graph, Precision precision) : graph_(graph), precision_(precision) {
    if (IsMixed(precision)) types_ = TypesOfGraph(graph, precision);
  }

  DType ResultType(ValueRef value) const {
    const bool typed = mixed() && !graph_.node(value.node).cost.has_value();
    return typed ? types_->nodes[value.node.index()].results[value.output]
                 : graph_.meta(value).dtype;
  }
  double Result(ValueRef value, int64_t samples) const {
    return Size(graph_.meta(value), ResultType(value), samples);
  }
  double Results(NodeId id, int64_t samples) const {
    double bytes = 0;
    for (size_t i = 0; i < graph_.node(id).outputs.size(); ++i)
      bytes += Result({id, static_cast<int32_t>(i)}, samples);
    return bytes;
  }
  // Inputs of the graph in the types that the node takes them in.
  double Inputs(NodeId id, int64_t samples) const {
    double bytes = 0;
    ForEachOperand(id, [&](const Operand& operand) {
      if (!operand.value) bytes += Size(*operand.meta, operand.taken, samples);
    });
    return bytes;
  }

  struct Operand {
    const TensorMeta* meta = nullptr;
    std::optional<ValueRef> value;  // Nothing: an input of the graph.
    DType comes, taken;
    bool cast() const { return comes != taken; }
  };
  // Values, then inputs of the graph.
  template <typename F>
  void ForEachOperand(NodeId id, F&& visit) const {
    const auto values = graph_.Values(id);
    const auto taken = [&](size_t i, DType comes) {
      return mixed() ? types_->nodes[id.index()].operands[i] : comes;
    };
    for (size_t i = 0; i < values.size(); ++i) {
      const DType comes = ResultType(values[i]);
      visit(Operand{&graph_.meta(values[i]), values[i], comes, taken(i, comes)});
    }
    const auto inputs = graph_.Inputs(id);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorMeta& meta = graph_.input(inputs[i]).meta;
      visit(Operand{&meta, std::nullopt, meta.dtype, taken(values.size() + i, meta.dtype)});
    }
  }

  // Parameters as the node takes them: the copies of weights, where it takes those.
  double Parameters(NodeId id) const {
    double bytes = 0;
    for (ParameterId p : graph_.Parameters(id)) bytes += Taken(id, graph_.parameter(p));
    return bytes;
  }
  double Taken(NodeId id, const Parameter& parameter) const {
    const bool cast = CastsWeights(graph_, id, precision_);
    return static_cast<double>(cast ? CastBytes(parameter, precision_) : parameter.SizeBytes());
  }
  bool mixed() const { return types_.has_value(); }

  static double Size(const TensorMeta& meta, DType dtype, int64_t samples) {
    return static_cast<double>(meta.Elements(samples) * SizeOf(dtype));
  }

 private:
  const Graph& graph_;
  const Precision precision_;
  std::optional<GraphTypes> types_;
};

}  // namespace stagewright
