#include "common/cost/measured/operator_signature.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/graph/aten.h"

namespace stagewright {
namespace {

std::string Text(const SymInt& number) {
  if (number.scale == 0) return absl::StrCat(number.offset);
  const std::string samples = number.scale == 1 ? "s" : absl::StrCat(number.scale, "s");
  if (number.offset == 0) return samples;
  return absl::StrCat(samples, number.offset > 0 ? "+" : "", number.offset);
}

std::string Text(const TensorMeta& meta) {
  return absl::StrCat(
      std::string(DTypeName(meta.dtype)), "[",
      absl::StrJoin(meta.shape, ",",
                    [](std::string* out, const SymInt& size) { absl::StrAppend(out, Text(size)); }),
      "]");
}

TensorMeta MetaOf(const Parameter& parameter) {
  TensorMeta meta;
  meta.dtype = parameter.dtype;
  for (int64_t size : parameter.shape) meta.shape.push_back({0, size});
  return meta;
}

TensorMeta TypedMeta(const Graph& graph, const std::optional<GraphTypes>& types, ValueRef value) {
  TensorMeta meta = graph.meta(value);
  meta.dtype = TypeOf(graph, types, value);
  return meta;
}

class SignatureText {
 public:
  SignatureText(const Graph& graph, NodeId id, const std::optional<GraphTypes>& types)
      : graph_(graph), id_(id), types_(types) {}

  std::string Of(const Argument& argument) {
    if (const NodeId view = ViewThatMade(graph_, argument, depth_); view.valid())
      return OfView(argument, view);
    return std::visit([&](const auto& value) { return Value(argument, value); }, argument.value);
  }

  std::vector<std::string> Arguments(const Node& node) {
    std::vector<std::string> arguments;
    for (const Argument& argument : node.args) arguments.push_back(Of(argument));
    for (const NamedArgument& argument : node.kwargs)
      arguments.push_back(absl::StrCat(argument.name, "=", Of(argument.value)));
    return arguments;
  }

 private:
  std::string Value(const Argument& argument, const ValueRef& value) {
    return Tensor(argument, "", TypedMeta(graph_, types_, value));
  }
  std::string Value(const Argument& argument, const InputId& input) {
    return Tensor(argument, "", graph_.input(input).meta);
  }
  std::string Value(const Argument& argument, const ParameterId& parameter) {
    return Tensor(argument, "p ", MetaOf(graph_.parameter(parameter)));
  }
  std::string Value(const Argument& argument, const TotalId& total) {
    return Tensor(argument, "t ", graph_.meta(total));
  }
  std::string Value(const Argument&, const SymInt& number) { return Text(number); }
  std::string Value(const Argument&, double number) { return absl::StrFormat("%.17g", number); }
  std::string Value(const Argument&, bool flag) { return flag ? "true" : "false"; }
  std::string Value(const Argument&, const std::string& text) {
    return absl::StrCat("\"", text, "\"");
  }
  std::string Value(const Argument&, None) { return "none"; }
  std::string Value(const Argument&, DType dtype) { return std::string(DTypeName(dtype)); }
  std::string Value(const Argument&, const MemoryFormat& format) { return format.name; }
  std::string Value(const Argument&, const Argument::List& list) {
    std::vector<std::string> items;
    items.reserve(list.size());
    for (const Argument& item : list) items.push_back(Of(item));
    return absl::StrCat("[", absl::StrJoin(items, ","), "]");
  }

  std::string Tensor(const Argument& argument, absl::string_view kind, const TensorMeta& meta) {
    const std::string before = Seen(argument);
    return before.empty() ? absl::StrCat(kind, Text(meta), Mark(argument)) : before;
  }

  std::string OfView(const Argument& argument, NodeId view) {
    if (std::string before = Seen(argument); !before.empty()) return before;
    const absl::string_view mark = Mark(argument);
    ++depth_;
    const int32_t output = std::get<ValueRef>(argument.value).output;
    const std::string text = absl::StrCat(std::string(AtenName(graph_.node(view).target)), "(",
                                          absl::StrJoin(Arguments(graph_.node(view)), ", "), ")",
                                          output > 0 ? absl::StrCat(".", output) : "", mark);
    --depth_;
    return text;
  }

  // "=i" for the i-th tensor; empty, and it becomes the next one, if it is new.
  std::string Seen(const Argument& tensor) {
    const auto seen = std::find(seen_.begin(), seen_.end(), tensor);
    if (seen != seen_.end()) return absl::StrCat("=", seen - seen_.begin());
    seen_.push_back(tensor);
    return "";
  }

  absl::string_view Mark(const Argument& operand) const {
    return depth_ == 0 && NeedsGradient(graph_, id_, operand) ? "'" : "";
  }

  const Graph& graph_;
  const NodeId id_;
  const std::optional<GraphTypes>& types_;
  std::vector<Argument> seen_;  // Tensors, in first-use order.
  int depth_ = 0;               // Views around the argument at hand.
};

}  // namespace

NodeId ViewThatMade(const Graph& graph, const Argument& operand, int depth) {
  constexpr int kDeepest = 16;
  const auto* value = std::get_if<ValueRef>(&operand.value);
  if (value == nullptr || depth > kDeepest) return NodeId();
  return KindOfTarget(graph.node(value->node).target) == AtenKind::kView ? value->node : NodeId();
}

bool NeedsGradient(const Graph& graph, NodeId node, const Argument& operand) {
  if (!graph.needs_backward(node)) return false;
  if (const auto* parameter = std::get_if<ParameterId>(&operand.value))
    return graph.parameter(*parameter).trainable;
  const auto* value = std::get_if<ValueRef>(&operand.value);
  return value != nullptr && graph.needs_backward(value->node) &&
         IsFloating(graph.meta(*value).dtype);
}

std::vector<int> GradientsReceived(const Graph& graph, NodeId id) {
  const std::vector<TensorMeta>& outputs = graph.node(id).outputs;
  std::vector<int> received(outputs.size(), 0);
  if (!graph.needs_backward(id)) return received;
  const auto receive = [&](const ValueRef& value) {
    if (value.node == id && IsFloating(outputs[value.output].dtype)) ++received[value.output];
  };
  for (int32_t reader : graph.dag().Successors(id.value())) {
    if (!graph.needs_backward(NodeId(reader))) continue;
    ForEachLeaf(graph.node(NodeId(reader)), [&](const Argument& leaf) {
      if (const auto* value = std::get_if<ValueRef>(&leaf.value)) receive(*value);
    });
  }
  if (graph.loss().has_value()) receive(*graph.loss());
  if (std::any_of(received.begin(), received.end(), [](int count) { return count > 0; }))
    return received;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!IsFloating(outputs[i].dtype)) continue;
    received[i] = 1;
    break;
  }
  return received;
}

std::optional<GraphTypes> MixedTypes(const Graph& graph, Precision precision) {
  if (!IsMixed(precision)) return std::nullopt;
  return TypesOfGraph(graph, precision);
}

DType TypeOf(const Graph& graph, const std::optional<GraphTypes>& types, ValueRef value) {
  if (!types.has_value() || graph.node(value.node).cost.has_value()) return graph.meta(value).dtype;
  return types->nodes[value.node.index()].results[static_cast<size_t>(value.output)];
}

namespace {

std::string SignatureIn(const Graph& graph, NodeId id, Precision precision,
                        const std::optional<GraphTypes>& types) {
  const Node& node = graph.node(id);
  SignatureText text(graph, id, types);
  const std::vector<std::string> arguments = text.Arguments(node);
  std::vector<std::string> results;
  const std::vector<int> received = GradientsReceived(graph, id);
  for (size_t i = 0; i < node.outputs.size(); ++i)
    results.push_back(absl::StrCat(Text(TypedMeta(graph, types, {id, static_cast<int32_t>(i)})),
                                   std::string(static_cast<size_t>(received[i]), '\'')));
  std::string signature = absl::StrCat(node.target, "(", absl::StrJoin(arguments, ", "), ") -> ",
                                       absl::StrJoin(results, ", "));
  if (precision != Precision::kGraph)
    absl::StrAppend(&signature, " in ", NameIn(kPrecisionNames, precision));
  return signature;
}

}  // namespace

std::string SignatureOf(const Graph& graph, NodeId id, Precision precision) {
  return SignatureIn(graph, id, precision, MixedTypes(graph, precision));
}

std::vector<std::string> SignaturesOf(const Graph& graph, Precision precision) {
  const std::optional<GraphTypes> types = MixedTypes(graph, precision);
  std::vector<std::string> signatures(static_cast<size_t>(graph.size()));
  for (int32_t v = 0; v < graph.size(); ++v) {
    if (!graph.node(NodeId(v)).cost.has_value())
      signatures[static_cast<size_t>(v)] = SignatureIn(graph, NodeId(v), precision, types);
  }
  return signatures;
}

bool DependsOnSamples(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  bool depends = std::any_of(node.outputs.begin(), node.outputs.end(),
                             [](const TensorMeta& meta) { return meta.DependsOnBatch(); });
  ForEachLeaf(node, [&](const Argument& leaf) {
    if (const auto* size = std::get_if<SymInt>(&leaf.value)) depends |= size->scale != 0;
    if (const auto* value = std::get_if<ValueRef>(&leaf.value))
      depends |= graph.meta(*value).DependsOnBatch();
    if (const auto* input = std::get_if<InputId>(&leaf.value))
      depends |= graph.input(*input).meta.DependsOnBatch();
  });
  return depends;
}

}  // namespace stagewright
