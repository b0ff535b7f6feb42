// How long planning takes and what it finds, for the models of GraphPipe's evaluation.
//
//   models_bench [--models mmt,dlrm,...] [--devices 4,8,16,32] [--repeat 3] [--no-replicas]
//                [--micro-batch b] [--graphs examples/graphs]
//
// Clusters are summit:N (4 devices a node), mini-batches those of the paper's appendix A.2. Two
// lines per model and number of devices, for "sequential" and "graphpipe": best search time,
// states, simulations, the slowest stage's time per sample, iteration time, depth, stages,
// micro-batch, peak memory, and the sequential iteration time over GraphPipe's.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "common/cost/analytic.h"
#include "common/cost/node_weights.h"
#include "common/topology/presets.h"
#include "common/wire/graph_file.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/planners/graphpipe/graphpipe.h"

namespace stagewright {
namespace {

struct Model {
  std::string name;
  int64_t mini_batch_at_4;  // Grows with the devices.
};

const std::vector<Model>& Models() {
  static const std::vector<Model> models = {
      {"mmt", 64}, {"dlrm", 256}, {"candle-uno", 4096}, {"transformer", 64}};
  return models;
}

struct Run {
  double seconds = 0;
  Outcome outcome;
  Evaluation evaluation;
};

absl::StatusOr<Run> Solve(const Planner& planner, const Problem& problem, const PlanOptions& plan,
                          int repeat) {
  Run run;
  for (int i = 0; i < repeat; ++i) {
    SearchContext context;
    const auto start = SearchContext::Clock::now();
    ASSIGN_OR_RETURN(run.outcome, planner.Solve(problem, plan, context));
    const double seconds =
        std::chrono::duration<double>(SearchContext::Clock::now() - start).count();
    if (i == 0 || seconds < run.seconds) run.seconds = seconds;
  }
  if (!run.outcome.strategy.has_value()) return absl::NotFoundError(run.outcome.reason);
  EvaluateOptions options;
  options.optimizer = problem.optimizer;
  ASSIGN_OR_RETURN(run.evaluation, Evaluate(*problem.graph, *problem.cluster, *problem.costs,
                                            *run.outcome.strategy, options));
  return run;
}

// "8" or "1..8".
std::string MicroBatches(const Strategy& strategy) {
  int64_t least = strategy.stages[0].micro_batch;
  int64_t most = least;
  for (const Stage& stage : strategy.stages) {
    least = std::min(least, stage.micro_batch);
    most = std::max(most, stage.micro_batch);
  }
  return least == most ? absl::StrCat(least) : absl::StrCat(least, "..", most);
}

void PrintRow(const std::string& model, int32_t devices, const char* planner, const Run& run) {
  double bottleneck = 0;
  Bytes peak = 0;
  for (const StageReport& stage : run.evaluation.stages) {
    bottleneck = std::max(bottleneck, stage.seconds_per_sample);
    peak = std::max(peak, stage.peak_memory);
  }
  std::printf("%-12s %7d %-10s %8.3f %9lld %4lld %10.1f %10.2f %5d %6zu %6s %9s", model.c_str(),
              devices, planner, run.seconds, static_cast<long long>(run.outcome.states),
              static_cast<long long>(run.outcome.candidates), bottleneck * 1e6,
              ToSeconds(run.evaluation.iteration_time) * 1e3, run.evaluation.depth,
              run.evaluation.stages.size(), MicroBatches(*run.outcome.strategy).c_str(),
              FormatBytes(peak).c_str());
}

absl::Status Bench(const Model& model, int32_t devices, const std::string& folder,
                   const PlanOptions& plan, int repeat) {
  ASSIGN_OR_RETURN(const Graph graph, ReadGraphFile(absl::StrCat(folder, "/", model.name, ".swg")));
  ASSIGN_OR_RETURN(const Cluster cluster, ClusterPreset(absl::StrCat("summit:", devices / 4)));
  const auto costs = MakeAnalyticCostModel(graph);
  const int64_t mini_batch = model.mini_batch_at_4 * devices / 4;
  // As the front door coarsens: at the share of a device when a few micro-batches fill a pipeline.
  ASSIGN_OR_RETURN(const OperatorGraph operators,
                   Coarsen(graph, NodeWeights(graph, *costs, cluster.kinds()[0],
                                              std::max<int64_t>(1, mini_batch / (2 * devices)))));
  const Problem problem{&graph, &operators, &cluster, costs.get(), mini_batch};
  const auto planner = MakeGraphPipePlanner();
  const auto baseline = MakeSequentialPlanner();
  const absl::StatusOr<Run> sequential = Solve(*baseline, problem, plan, repeat);
  if (sequential.ok()) {
    PrintRow(model.name, devices, "sequential", *sequential);
    std::printf("\n");
  } else {
    std::printf("%-12s %7d sequential %s\n", model.name.c_str(), devices,
                std::string(sequential.status().message()).c_str());
  }
  ASSIGN_OR_RETURN(const Run graph_run, Solve(*planner, problem, plan, repeat));
  PrintRow(model.name, devices, "graphpipe", graph_run);
  if (sequential.ok()) {
    std::printf(" %6.3f", static_cast<double>(sequential->evaluation.iteration_time) /
                              static_cast<double>(graph_run.evaluation.iteration_time));
  }
  std::printf("\n");
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Search time and quality of the planners on GraphPipe's models");
  std::vector<std::string> names;
  std::vector<int32_t> devices = {4, 8, 16, 32};
  std::string folder = "examples/graphs";
  int repeat = 3;
  bool no_replicas = false;
  PlanOptions plan;
  app.add_option("--models", names, "of mmt, dlrm, candle-uno, transformer; all by default")
      ->delimiter(',');
  app.add_option("--devices", devices, "numbers of devices, multiples of 4")->delimiter(',');
  app.add_option("--graphs", folder, "folder of the .swg files");
  app.add_option("--repeat", repeat, "searches per line; the fastest counts");
  app.add_flag("--no-replicas", no_replicas, "one device per stage");
  app.add_option("--micro-batch", plan.micro_batch, "one size for all stages");
  CLI11_PARSE(app, argc, argv);
  plan.allow_replicas = !no_replicas;
  std::printf("%-12s %7s %-10s %8s %9s %4s %10s %10s %5s %6s %6s %9s %6s\n", "model", "devices",
              "planner", "search s", "states", "sim", "us/sample", "iter ms", "depth", "stages",
              "batch", "peak", "ratio");
  int status = 0;
  for (const Model& model : Models()) {
    if (!names.empty() && std::find(names.begin(), names.end(), model.name) == names.end()) {
      continue;
    }
    for (int32_t count : devices) {
      if (const absl::Status result = Bench(model, count, folder, plan, repeat); !result.ok()) {
        std::printf("%-12s %7d %s\n", model.name.c_str(), count,
                    std::string(result.message()).c_str());
        status = 1;
      }
      std::fflush(stdout);
    }
  }
  return status;
}

}  // namespace
}  // namespace stagewright

int main(int argc, char** argv) { return stagewright::Main(argc, argv); }
