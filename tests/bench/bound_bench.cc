// How tight the lower bound is: its parts, its own time and, with --plan, the gap of `auto` to it
// before and after Joint and Join, on captured models and 4 to 32 devices of Summit. A Markdown
// table; then the bound's time on 1,024 devices.
//
//   bound_bench [--plan] [--graphs examples/graphs]
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/cost/analytic.h"
#include "common/cost/node_weights.h"
#include "common/topology/presets.h"
#include "common/wire/graph_file.h"
#include "planner_service/evaluator/lower_bound.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/front_door/planner_table.h"

namespace stagewright {
namespace {

struct Model {
  const char* name;
  const char* file;
  int64_t batch_each;  // Samples a device.
};
constexpr Model kModels[] = {{"MMT", "mmt.swg", 16},
                             {"Transformer", "transformer.swg", 16},
                             {"DLRM", "dlrm.swg", 64},
                             {"CANDLE-Uno", "candle-uno.swg", 1024}};

template <typename T>
T Checked(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "bound_bench: %s\n", result.status().ToString().c_str());
  std::exit(1);
}

double Millis(Nanos t) { return ToSeconds(t) * 1e3; }

std::string Gap(Nanos time, Nanos bound) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%",
                100 * (static_cast<double>(time) / static_cast<double>(bound) - 1));
  return text;
}

Nanos TimeOfAuto(const Graph& graph, const Cluster& cluster, int64_t mini_batch) {
  PlanRequest request;
  request.planner = kDefaultPlanner;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = mini_batch;
  SearchContext context;
  const PlanResponse response = Checked(SolvePlan(request, context));
  return response.best ? response.best->evaluation.iteration_time : Nanos(0);
}

void Report(const Model& model, const Graph& graph, int nodes, bool plan) {
  const Cluster cluster = Checked(ClusterPreset(absl::StrCat("summit:", nodes)));
  const int64_t mini_batch = model.batch_each * cluster.size();
  const auto costs = MakeAnalyticCostModel(graph);
  const int64_t share = std::max<int64_t>(1, mini_batch / (2 * cluster.size()));
  const OperatorGraph operators =
      Checked(Coarsen(graph, NodeWeights(graph, *costs, cluster.kinds()[0], share)));
  BoundOptions options;
  options.optimizer = Optimizer::kAdam;
  const absl::Time start = absl::Now();
  const BoundParts parts = BoundPartsOf(graph, operators, cluster, *costs, mini_batch, options);
  const double micros = absl::ToDoubleMicroseconds(absl::Now() - start);
  const Nanos before = std::max({parts.work, parts.node, parts.path});
  std::printf("| %s | %d | %.1f | %.1f | %.1f | %.1f | %.1f | %.2f | %.2f | %.0f |", model.name,
              cluster.size(), Millis(parts.work), Millis(parts.node), Millis(parts.path),
              Millis(parts.joint), Millis(parts.join), Millis(before), Millis(parts.Largest()),
              micros);
  if (plan) {
    const Nanos found = TimeOfAuto(graph, cluster, mini_batch);
    std::printf(" %.1f | %s | %s |", Millis(found), Gap(found, before).c_str(),
                Gap(found, parts.Largest()).c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace
}  // namespace stagewright

int main(int argc, char** argv) {
  CLI::App app("how tight the lower bound is");
  bool plan = false;
  std::string graphs = "examples/graphs";
  app.add_flag("--plan", plan, "ask auto for its plan, too");
  app.add_option("--graphs", graphs, "the folder of the captured graphs");
  CLI11_PARSE(app, argc, argv);
  std::printf(
      "| model | devices | work | node | path | joint | join | before, ms | bound, ms | bound's "
      "own time, us |%s\n",
      plan ? " auto, ms | gap before | gap |" : "");
  std::printf("|---|---|---|---|---|---|---|---|---|---|%s\n", plan ? "---|---|---|" : "");
  for (const auto& model : stagewright::kModels) {
    const stagewright::Graph graph =
        stagewright::Checked(stagewright::ReadGraphFile(absl::StrCat(graphs, "/", model.file)));
    for (int nodes : {1, 2, 4, 8}) stagewright::Report(model, graph, nodes, plan);
    if (!plan) stagewright::Report(model, graph, 256, false);
  }
  return 0;
}
