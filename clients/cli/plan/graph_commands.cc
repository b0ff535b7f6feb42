#include "clients/cli/plan/graph_commands.h"

#include <iostream>
#include <memory>

#include "clients/cli/exit_code.h"
#include "clients/cli/files/write_file.h"
#include "clients/cli/flags/graph_source.h"
#include "clients/cli/view/graph_view.h"
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

// Coarsened as a planner would for a mini-batch of 64 on one CPU: weights only decide which nodes
// are light.
absl::StatusOr<OperatorGraph> Operators(const Graph& graph) {
  if (!graph.executable()) return OneOperatorPerNode(graph);
  ASSIGN_OR_RETURN(Cluster cluster, ClusterPreset("cpu:1"));
  const auto costs = MakeAnalyticCostModel(graph);
  return Coarsen(graph, NodeWeights(graph, *costs, cluster.kinds()[0], 64));
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
  if (absl::Status status = WriteFile(out, GraphFileBytes(*graph)); !status.ok())
    return Report(status);
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
