// How tight the lower bound is: its parts, which of them binds, its own processor time and, with
// --plan, the gap of `auto` to it before and after the joint bounds; on captured models and
// synthetic profiles and 4 to 1,024 devices. Where the plan cuts operators, the bound is of the
// graph that comes out. Two Markdown tables: the rows, and the median and the worst of their gaps.
//
//   bound_bench [--plan] [--graphs examples/graphs] [--only NAME]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/cost/analytic.h"
#include "common/cost/node_weights.h"
#include "common/topology/presets.h"
#include "common/topology/uniform.h"
#include "common/wire/graph_file.h"
#include "planner_service/evaluator/lower_bound.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/front_door/planner_table.h"
#include "tests/support/model_graphs.h"
#include "tests/support/shared_graphs.h"

namespace stagewright {
namespace {

template <typename T>
T Checked(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "bound_bench: %s\n", result.status().ToString().c_str());
  std::exit(1);
}

struct Model {
  std::string name;
  std::function<Graph()> graph;
  bool summit;         // Summit's nodes of 4 devices; else links that nobody shares.
  int64_t batch_each;  // Samples a device.
  std::vector<int32_t> devices;
};

std::vector<Model> Models(const std::string& graphs) {
  const auto captured = [&](const char* file) {
    return [path = absl::StrCat(graphs, "/", file)] { return Checked(ReadGraphFile(path)); };
  };
  const auto profile = [](const char* name) {
    return [path = absl::StrCat("synthetic/", name, ".graph.txt")] {
      return ImportedGraph(ProfileFormat::kPipeDream, path);
    };
  };
  const std::vector<int32_t> few = {4, 8, 16, 32};
  return {{"MMT", captured("mmt.swg"), true, 16, few},
          {"Transformer", captured("transformer.swg"), true, 16, few},
          {"DLRM", captured("dlrm.swg"), true, 64, few},
          {"CANDLE-Uno", captured("candle-uno.swg"), true, 1024, few},
          {"mmt4_layer", profile("mmt4_layer"), false, 1, few},
          {"candle7", profile("candle7"), false, 1, {8, 16, 32}},
          {"dlrm7x7", profile("dlrm7x7"), false, 1, {8, 16, 32}},
          {"MMT 8 x 64", [] { return testing::MmtGraph(8, 64); }, false, 16, {1024}}};
}

double Millis(Nanos t) { return ToSeconds(t) * 1e3; }

double Gap(Nanos time, Nanos bound) {
  return 100 * (static_cast<double>(time) / static_cast<double>(bound) - 1);
}

BoundParts PartsOf(const Graph& graph, const Cluster& cluster, int64_t mini_batch) {
  const auto costs = MakeAnalyticCostModel(graph);
  const int64_t share = std::max<int64_t>(1, mini_batch / (2 * cluster.size()));
  const OperatorGraph operators = Checked(
      graph.executable() ? Coarsen(graph, NodeWeights(graph, *costs, cluster.kinds()[0], share))
                         : OneOperatorPerNode(graph));
  BoundOptions options;
  options.optimizer = Optimizer::kAdam;
  return BoundPartsOf(graph, operators, cluster, *costs, mini_batch, options);
}

PlanResponse Answer(const Graph& graph, const Cluster& cluster, int64_t mini_batch) {
  PlanRequest request;
  request.planner = kDefaultPlanner;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = mini_batch;
  SearchContext context;
  return Checked(SolvePlan(request, context));
}

// The name of the largest part.
const char* Binding(const BoundParts& parts) {
  const std::array<std::pair<Nanos, const char*>, 6> named = {{{parts.work, "work"},
                                                               {parts.path, "path"},
                                                               {parts.joint, "joint"},
                                                               {parts.node, "node"},
                                                               {parts.packing, "packing"},
                                                               {parts.join, "join"}}};
  return std::max_element(named.begin(), named.end(),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

void Report(const Model& model, int32_t devices, bool plan, std::vector<double>& gaps) {
  const Graph graph = model.graph();
  const Cluster cluster = Checked(model.summit ? ClusterPreset(absl::StrCat("summit:", devices / 4))
                                               : UniformPreset(absl::StrCat("uniform:", devices)));
  const int64_t mini_batch = model.batch_each * devices;
  PlanResponse answer;
  if (plan) answer = Answer(graph, cluster, mini_batch);
  const bool cut = answer.best && answer.best->split_graphs != nullptr;
  const Graph& planned = cut ? answer.best->split_graphs->graph : graph;
  const std::clock_t start = std::clock();
  const BoundParts parts = PartsOf(planned, cluster, mini_batch);
  const double millis = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const Nanos before = std::max({parts.work, parts.node, parts.path});
  std::printf("| %s%s | %d |", model.name.c_str(), cut ? ", cut" : "", devices);
  for (Nanos part : {parts.work, parts.path, parts.joint, parts.node, parts.packing, parts.join})
    std::printf(" %.1f |", Millis(part));
  std::printf(" %.1f | %.1f | %s | %.1f |", Millis(before), Millis(parts.Largest()), Binding(parts),
              millis);
  if (answer.best) {
    const Nanos found = answer.best->evaluation.iteration_time;
    gaps.push_back(Gap(found, parts.Largest()));
    std::printf(" %.1f | %.1f %% | %.1f %% |", Millis(found), Gap(found, before), gaps.back());
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
  std::string only;
  app.add_flag("--plan", plan, "ask auto for its plan, too");
  app.add_option("--graphs", graphs, "the folder of the captured graphs");
  app.add_option("--only", only, "one model");
  CLI11_PARSE(app, argc, argv);
  std::printf(
      "| model | devices | work | path | joint | node | packing | join | before, ms | bound, ms "
      "| binds | own time, ms |%s\n",
      plan ? " auto, ms | gap before | gap |" : "");
  std::printf("|---|---|---|---|---|---|---|---|---|---|---|---|%s\n", plan ? "---|---|---|" : "");
  std::vector<double> gaps;
  for (const stagewright::Model& model : stagewright::Models(graphs)) {
    if (!only.empty() && model.name != only) continue;
    for (int32_t devices : model.devices) stagewright::Report(model, devices, plan, gaps);
    if (!plan && model.summit) stagewright::Report(model, 1024, false, gaps);
  }
  if (gaps.empty()) return 0;
  std::sort(gaps.begin(), gaps.end());
  std::printf("\n| rows | median gap | worst |\n|---|---|---|\n| %zu | %.1f %% | %.1f %% |\n",
              gaps.size(), gaps[gaps.size() / 2], gaps.back());
  return 0;
}
