// `stagewright graph show`, `stagewright graph import`.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/cli/commands.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/graph_source.h"
#include "clients/cli/table.h"
#include "common/cost/analytic.h"
#include "common/cost/cost_model.h"
#include "common/cost/node_weights.h"
#include "common/graph/operator_graph.h"
#include "common/graph/series_parallel.h"
#include "common/topology/cluster.h"
#include "common/topology/presets.h"
#include "common/wire/graph_file.h"

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

// Coarsened as a planner would for a mini-batch of 64 on one CPU: weights only decide which nodes
// are light.
absl::StatusOr<OperatorGraph> Operators(const Graph& graph) {
  if (!graph.executable()) return OneOperatorPerNode(graph);
  ASSIGN_OR_RETURN(Cluster cluster, ClusterPreset("cpu:1"));
  const auto costs = MakeAnalyticCostModel(graph);
  return Coarsen(graph, NodeWeights(graph, *costs, cluster.kinds()[0], 64));
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

int RunGraphShow(const GraphSource& source, const Globals& globals) {
  std::vector<std::string> warnings;
  auto graph = LoadGraph(source, warnings);
  if (!graph.ok()) return Report(graph.status());
  auto operators = Operators(*graph);
  if (!operators.ok()) return Report(operators.status());
  const SpTree tree = Decompose(operators->dag());
  if (globals.json()) {
    nlohmann::json json = GraphJson(*graph, *operators, tree);
    json["warnings"] = warnings;
    std::cout << json.dump(2) << std::endl;
  } else {
    std::cout << GraphText(*graph, *operators, tree);
    for (const std::string& warning : warnings) std::cout << "warning: " << warning << "\n";
  }
  return kSuccess;
}

int RunGraphImport(const GraphSource& source, const std::string& out) {
  std::vector<std::string> warnings;
  auto graph = LoadGraph(source, warnings);
  if (!graph.ok()) return Report(graph.status());
  if (absl::Status status = WriteGraphFile(*graph, out); !status.ok()) return Report(status);
  for (const std::string& warning : warnings) std::cerr << "warning: " << warning << "\n";
  return kSuccess;
}

}  // namespace

void AddGraphCommands(CLI::App& app, Globals& globals) {
  CLI::App* graph = app.add_subcommand("graph", "look at graphs; import profiles");
  graph->require_subcommand(1);
  auto shown = std::make_shared<GraphSource>();
  CLI::App* show = graph->add_subcommand("show", "operators, shapes and structure of a graph");
  AddGraphSource(*show, *shown);
  show->get_option("graph")->required();
  AddOutputOption(*show, globals);
  show->callback([shown, &globals] { globals.exit_code = RunGraphShow(*shown, globals); });

  auto imported = std::make_shared<GraphSource>();
  auto out = std::make_shared<std::string>();
  CLI::App* import = graph->add_subcommand("import", "turn a published profile into a graph file");
  AddGraphSource(*import, *imported);
  import->get_option("graph")->required();
  import->get_option("--from")->required();
  import->add_option("--out", *out, "graph file to write (.swg)")->required();
  import->callback([imported, out, &globals] { globals.exit_code = RunGraphImport(*imported, *out);
});
}  // namespace stagewright::cli

}  // namespace stagewright::cli
