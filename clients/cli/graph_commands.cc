// `stagewright graph show`.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/cli/commands.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/table.h"
#include "common/cost/cost_model.h"
#include "common/graph/operator_graph.h"
#include "common/graph/series_parallel.h"
#include "common/topology/cluster.h"
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
  return bytes;
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
          {"trainable_bytes", TrainableBytes(graph)},
          {"converted_blocks", tree.converted_blocks},
          {"depth", Depth(operators.dag())},
          {"operators", std::move(list)}};
}

int RunGraphShow(const std::string& path, const Globals& globals) {
  auto graph = ReadGraphFile(path);
  if (!graph.ok()) return Report(graph.status());
  auto operators = Operators(*graph);
  if (!operators.ok()) return Report(operators.status());
  const SpTree tree = Decompose(operators->dag());
  if (globals.json()) {
    std::cout << GraphJson(*graph, *operators, tree).dump(2) << std::endl;
  } else {
    std::cout << GraphText(*graph, *operators, tree);
  }
  return kSuccess;
}

}  // namespace

void AddGraphCommands(CLI::App& app, Globals& globals) {
  CLI::App* graph = app.add_subcommand("graph", "look at graph files");
  graph->require_subcommand(1);
  auto path = std::make_shared<std::string>();
  CLI::App* show = graph->add_subcommand("show", "operators, shapes and structure of a graph file");
  show->add_option("graph", *path, "graph file (.swg)")->required();
  AddOutputOption(*show, globals);
  show->callback([path, &globals] { globals.exit_code = RunGraphShow(*path, globals); });
}

}  // namespace stagewright::cli
