// DRL-PP beside PipeDream, asynchronous pipelines on four devices, on the profiles that PipeDream
// published. Writes drl-pp.md; needs the profiles (tests/README.md) and leaves the page alone
// without them.
//
//   figures_drl_pp_bench --out FOLDER [--steps 120] [--long]
//
// The policy learns for so many steps with each of five seeds: with --long as many as the paper's,
// which takes half an hour.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/topology/presets.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/front_door/planner_table.h"
#include "planner_service/planners/drl_pp/drl_pp.h"
#include "tests/planner_service/planners/drl_pp/profiled_batches.h"
#include "tests/support/shared_graphs.h"

namespace stagewright::bench {
namespace {

constexpr int kSeeds = 5;
constexpr int kLongSteps = 600;
constexpr int64_t kMiniBatch = 12;  // Profiled mini-batches.

struct Model {
  const char* title;
  const char* file;
  double paper_gain;  // What DRL-PP gains over PipeDream.
};
constexpr std::array<Model, 3> kModels = {{{"VGG-16", "pipedream/vgg16.graph.txt", 1.3},
                                           {"GNMT", "pipedream/gnmt.graph.txt", 1.22},
                                           {"AlexNet", "pipedream/alexnet.graph.txt", 1.2}}};

template <typename T>
T Checked(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "figures_drl_pp_bench: %s\n", result.status().ToString().c_str());
  std::exit(1);
}

struct Answer {
  std::string placement;  // "3-1": replicas by stage.
  double ms = 0;
};

Answer AnswerOf(const PlanResponse& response) {
  const std::string placement = absl::StrJoin(
      response.best->plan.strategy.stages, "-",
      [](std::string* out, const Stage& s) { absl::StrAppend(out, s.devices.size()); });
  return {placement, ToSeconds(response.best->evaluation.iteration_time) * 1e3};
}

PlanRequest Request(const Graph& graph, const Cluster& cluster) {
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = kMiniBatch;
  request.options.asynchronous = true;
  return request;
}

// Fastest first.
std::vector<Answer> Learn(const Graph& graph, const Cluster& cluster, int steps) {
  std::vector<Answer> answers;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    PlanRequest request = Request(graph, cluster);
    request.options.seed = seed;
    SearchContext context;
    context.measure = MeasureProfiledBatches;
    const PlanResponse response =
        Checked(SolvePlanWith(*MakeDrlPpPlanner({.steps = steps}), request, context));
    if (!response.best) continue;
    answers.push_back(AnswerOf(response));
    std::fprintf(stderr, "seed %d: %s, %.1f ms\n", static_cast<int>(seed),
                 answers.back().placement.c_str(), answers.back().ms);
  }
  std::stable_sort(answers.begin(), answers.end(),
                   [](const Answer& a, const Answer& b) { return a.ms < b.ms; });
  return answers;
}

// The fastest answer of a planner under the paper's condition, or without it.
Answer Ask(const Graph& graph, const Cluster& cluster, const char* planner, bool condition) {
  Answer best{"none", std::numeric_limits<double>::infinity()};
  for (int64_t size = 0; size <= cluster.size(); ++size) {
    // 0: any size, which only the free form may have.
    if (kMiniBatch % std::max<int64_t>(1, size) != 0 || condition == (size == 0)) continue;
    PlanRequest request = Request(graph, cluster);
    request.planner = planner;
    request.options.micro_batch = size;
    SearchContext context;
    const PlanResponse response = Checked(SolvePlan(request, context));
    if (!response.best) continue;
    if (condition && !OneProfiledBatchAtATime(response.best->plan.strategy)) continue;
    const Answer answer = AnswerOf(response);
    if (answer.ms < best.ms) best = answer;
    if (!condition) break;
  }
  return best;
}

// "3-1 (4 seeds), 2-2 (1)".
std::string Placements(const std::vector<Answer>& answers) {
  std::map<std::string, int> seeds;
  for (const Answer& answer : answers) ++seeds[answer.placement];
  std::vector<std::pair<std::string, int>> sorted(seeds.begin(), seeds.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return absl::StrJoin(sorted, ", ", [](std::string* out, const auto& each) {
    absl::StrAppend(out, each.first, " (", each.second, ")");
  });
}

std::string Verdict(const std::vector<std::string>& slower, const std::vector<std::string>& equal,
                    const std::vector<std::string>& faster) {
  const auto list = [](const std::vector<std::string>& models) {
    return models.empty() ? "no model" : absl::StrJoin(models, ", ");
  };
  return absl::StrCat("By the median seed the learnt plan is faster than PipeDream's for ",
                      list(faster), ", as fast within 0.5 % for ", list(equal), ", and slower for ",
                      list(slower), ".\n");
}

int Main(const std::string& folder, int steps) {
  const Cluster cluster = Checked(LoadCluster("uniform:4,bandwidth=1e9"));
  std::string rows;
  std::vector<std::string> slower;
  std::vector<std::string> equal;
  std::vector<std::string> faster;
  for (const Model& model : kModels) {
    const std::string path = SharedGraph(model.file);
    if (path.empty()) {
      std::printf("without the profile %s, drl-pp.md stays as it is\n", model.file);
      return 0;
    }
    const Graph graph = ImportedGraph(ProfileFormat::kPipeDream, path);
    const Answer pipedream = Ask(graph, cluster, "pipedream", true);
    const Answer searched = Ask(graph, cluster, "auto", false);
    const std::vector<Answer> learnt = Learn(graph, cluster, steps);
    if (learnt.empty()) continue;
    const Answer& median = learnt[learnt.size() / 2];
    const double gain = pipedream.ms / median.ms;
    (gain > 1.005 ? faster : gain < 0.995 ? slower : equal).push_back(model.title);
    absl::StrAppendFormat(&rows,
                          "| %s | %.1f, %s | %.1f / %.1f / %.1f | %s | %.2f (%.2f to %.2f) | %g | "
                          "%.1f, %s |\n",
                          model.title, pipedream.ms, pipedream.placement, learnt.front().ms,
                          median.ms, learnt.back().ms, Placements(learnt), gain,
                          pipedream.ms / learnt.back().ms, pipedream.ms / learnt.front().ms,
                          model.paper_gain, searched.ms, searched.placement);
  }
  std::ofstream file(folder + "/drl-pp.md");
  file << absl::StrFormat(
      "# DRL-PP beside PipeDream\n\n"
      "Asynchronous pipelines on four devices with 1 GB/s between each pair, %d profiled "
      "mini-batches a "
      "step, one of them at a time on each\ndevice, as in the paper, on the profiles that "
      "PipeDream "
      "published; both planners by this project's simulator. The policy learns for\n%d steps (the "
      "paper: 200 to 600) with each of %d seeds. Written by `scripts/bench.sh figures`; with "
      "`--long` it learns for %d steps.\n\n%s\n"
      "| profile | PipeDream, ms | DRL-PP: best / median / worst seed, ms | placements (seeds) | "
      "PipeDream over DRL-PP, median (spread) | paper | `auto`, any number at a time, ms "
      "|\n|---|---|---|---|---|---|---|"
      "\n%s\nThe paper's PipeDream has the branches of a model compressed to a chain and sends "
      "over Gloo, "
      "where DRL-PP has NCCL; ours cuts between\nall operators and has the same links, so that the "
      "paper's gain is in part the baseline's.\n",
      static_cast<int>(kMiniBatch), steps, kSeeds, kLongSteps, Verdict(slower, equal, faster),
      rows);
  std::printf("%s", rows.c_str());
  if (file) return 0;
  std::fprintf(stderr, "figures_drl_pp_bench: cannot write to %s\n", folder.c_str());
  return 1;
}

}  // namespace
}  // namespace stagewright::bench

int main(int argc, char** argv) {
  CLI::App app("DRL-PP beside PipeDream");
  std::string folder = "docs/results";
  int steps = 120;
  bool long_form = false;
  app.add_option("--out", folder, "folder to write to")->check(CLI::ExistingDirectory);
  app.add_option("--steps", steps, "of learning, for each seed")->check(CLI::PositiveNumber);
  app.add_flag("--long", long_form, "as many steps as the paper takes at most");
  CLI11_PARSE(app, argc, argv);
  return stagewright::bench::Main(folder, long_form ? stagewright::bench::kLongSteps : steps);
}
