#include "clients/cli/view/graph_view.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/cli/view/table.h"
#include "common/base/units.h"

namespace stagewright::cli {
namespace {

std::string ShapeText(const TensorMeta& meta) {
  std::string text = absl::StrCat(std::string(DTypeName(meta.dtype)), "[");
  for (size_t i = 0; i < meta.shape.size(); ++i) {
    const SymInt& dim = meta.shape[i];
    if (i > 0) text += ", ";
    if (dim.scale == 0) {
      absl::StrAppend(&text, dim.offset);
    } else {
      absl::StrAppend(&text, dim.scale == 1 ? "" : absl::StrCat(dim.scale, "*"), "B",
                      dim.offset == 0 ? "" : absl::StrCat("+", dim.offset));
    }
  }
  return text + "]";
}

Bytes TrainableBytes(const Graph& graph) {
  Bytes bytes = 0;
  for (const Parameter& parameter : graph.parameters())
    bytes += parameter.trainable ? parameter.SizeBytes() : 0;
  for (const Node& node : graph.nodes()) {
    if (node.cost.has_value()) bytes += node.cost->parameter_bytes;
  }
  return bytes;
}

// Operators of an imported profile, per profiled micro-batch.
std::string ProfileText(const Graph& graph, const OperatorGraph& operators) {
  Table table(
      {">operator", "name", "what", ">forward", ">backward", ">output", ">parameters", "before"});
  for (int32_t i = 0; i < operators.size(); ++i) {
    const Node& node = graph.node(operators.op(OperatorId(i)).nodes.front());
    const ProfiledCost cost = node.cost.value_or(ProfiledCost{});
    std::vector<std::string> next;
    for (int32_t w : operators.dag().Successors(i)) next.push_back(absl::StrCat(w));
    const size_t kWidest = 40;
    table.Add({absl::StrCat(i), node.name, node.module.substr(0, kWidest),
               FormatDuration(cost.forward), FormatDuration(cost.backward),
               FormatBytes(cost.activation_bytes), FormatBytes(cost.parameter_bytes),
               absl::StrJoin(next, ",")});
  }
  return table.ToString();
}

}  // namespace

std::string GraphText(const Graph& graph, const OperatorGraph& operators, const SpTree& tree) {
  int64_t elements = 0;
  for (const Parameter& parameter : graph.parameters())
    elements += parameter.trainable ? parameter.Elements() : 0;
  std::string out = absl::StrCat(graph.name(), ": ", graph.size(), " nodes, ", operators.size(),
                                 " planner operators, ", elements, " trainable parameters (",
                                 FormatBytes(TrainableBytes(graph)), ")\n");
  for (const Input& input : graph.inputs()) {
    absl::StrAppend(&out, input.role == InputRole::kTarget ? "target  " : "input   ", input.name,
                    "  ", ShapeText(input.meta), "\n");
  }
  absl::StrAppend(&out, "structure  depth ", Depth(operators.dag()), ", ",
                  tree.converted_blocks == 0
                      ? "series-parallel"
                      : absl::StrCat(tree.converted_blocks, " blocks made series-parallel"),
                  "\n\n");
  if (!graph.nodes().empty() && graph.nodes().front().cost.has_value())
    return out + ProfileText(graph, operators);
  Table table({">operator", "name", ">nodes", "output", "before"});
  for (int32_t i = 0; i < operators.size(); ++i) {
    const Operator& op = operators.op(OperatorId(i));
    std::vector<std::string> next;
    for (int32_t w : operators.dag().Successors(i)) next.push_back(absl::StrCat(w));
    const Node& last = graph.node(op.nodes.back());
    table.Add({absl::StrCat(i), op.name, absl::StrCat(op.nodes.size()),
               last.outputs.empty() ? "" : ShapeText(last.outputs[0]), absl::StrJoin(next, ",")});
  }
  return out + table.ToString();
}

nlohmann::json GraphJson(const Graph& graph, const OperatorGraph& operators, const SpTree& tree) {
  nlohmann::json list = nlohmann::json::array();
  for (int32_t i = 0; i < operators.size(); ++i) {
    const Operator& op = operators.op(OperatorId(i));
    std::vector<std::string> nodes;
    for (NodeId node : op.nodes) nodes.push_back(graph.node(node).name);
    const auto next = operators.dag().Successors(i);
    list.push_back({{"name", op.name},
                    {"nodes", nodes},
                    {"successors", std::vector<int32_t>(next.begin(), next.end())}});
  }
  return {{"name", graph.name()},
          {"nodes", graph.size()},
          {"executable", graph.executable()},
          {"parameters", graph.parameters().size()},
          {"trainable_bytes", TrainableBytes(graph).count()},
          {"converted_blocks", tree.converted_blocks},
          {"depth", Depth(operators.dag())},
          {"operators", std::move(list)}};
}

}  // namespace stagewright::cli
