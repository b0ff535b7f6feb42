// The counterparts of DAPPLE's tables V and VII, for the models whose profiles are published.
// Writes dapple.md; needs the profiles (tests/README.md) and leaves the page alone without them.
//
//   figures_dapple_bench --out FOLDER
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/planner_service/planners/dapple/profiles.h"

namespace stagewright::dapple {
namespace {

// "8 : 8 split at 30", "data parallel", "straight".
std::string Describe(const ChainPlan& plan, const Placements& placements) {
  std::vector<std::string> replicas;
  std::vector<std::string> cuts;
  bool straight = plan.stages.size() > 2;
  for (const ChainStage& stage : plan.stages) {
    const size_t count = placements.Devices(stage.devices).size();
    replicas.push_back(absl::StrCat(count));
    straight = straight && count == 1;
    if (stage.begin > 0) cuts.push_back(absl::StrCat(stage.begin));
  }
  if (plan.stages.size() == 1) return "data parallel";
  if (straight) return absl::StrCat("straight, ", plan.stages.size(), " stages");
  return absl::StrCat(absl::StrJoin(replicas, " : "), " split at ", absl::StrJoin(cuts, ", "));
}

struct Row {
  const char* model;
  const char* file;
  int64_t global_batch;
  int64_t micro_batch;
  std::vector<const char*> paper;  // Configurations A, B, C.
};

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
      {"VGG-19",
       "dapple/vgg-19-pbs-32.txt",
       2048,
       512,
       {"data parallel", "data parallel", "15 : 1"}},
      {"GNMT-16", "dapple/gnmt-16-pbs-64.txt", 1024, 64, {"8 : 8", "8 : 8", "straight"}},
      {"BERT-48", "dapple/bert-48-pbs-2.txt", 64, 2, {"8 : 8", "straight", "straight"}}};
  return rows;
}

// The best plan of a row on a configuration, as text, and its latency over plain data parallelism.
struct Found {
  std::string plan;
  double over_data_parallel = 0;
};

Found Search(const ChainCosts& costs, char configuration, SearchOptions options) {
  const Cluster cluster = Configuration(configuration);
  const ClusterNetwork network(cluster);
  Placements placements(cluster);
  const ChainPlan best =
      SearchChain(costs, network, placements, options, SearchContext()).plans.at(0);
  Placements::Choice all;
  placements.Choose(Placements::kEmpty, placements.size(), Policy::kFreshFirst, all);
  const double parallel =
      LatencyOf(costs, network, placements, options, {{0, costs.size(), all.devices}});
  return {Describe(best, placements), best.latency / parallel};
}

std::string TableV() {
  std::string text =
      "\n## Table V: 16 devices, three networks\n\n"
      "The paper's formulas on its configurations: A is two servers of eight with NVLink and 25 "
      "Gb/s between them, B and C sixteen\nservers of one with 25 and 10 Gb/s. Formula 2 is read "
      "in two ways ([deviation "
      "10](../planners/dapple.md#deviations-from-the-paper-and-the-published-program)): *as "
      "coded*, the\ngradient sum of the pivot stage follows its last backward pass, AR + B; *as "
      "printed*, it overlaps with that pass, AR - B. The planner\ntakes the former. Searched are "
      "plans of any number of stages, and of two, to which most of the paper's plans keep. "
      "*Over DP* is the\nlatency of the plan of any number of stages over that of plain data "
      "parallelism, in the same reading.\n\n"
      "| model | configuration | paper | as coded | over DP | as printed | over DP | two stages, "
      "as "
      "coded | two stages, as printed |\n|---|---|---|---|---|---|---|---|---|\n";
  for (const Row& row : Rows()) {
    const Graph graph = LoadProfile(SharedGraph(row.file));
    const ChainCosts costs =
        ProfiledChain(graph, graph.dag().order(), static_cast<double>(row.micro_batch));
    for (size_t i = 0; i < row.paper.size(); ++i) {
      const char name = static_cast<char>('A' + i);
      absl::StrAppendFormat(&text, "| %s | %c | %s |", row.model, name, row.paper[i]);
      for (int32_t stages : {0, 2}) {
        for (PivotSum reading : {PivotSum::kAfterBackward, PivotSum::kAsPrinted}) {
          SearchOptions options;
          options.pivot_sum = reading;
          options.micro_batches = row.global_batch / row.micro_batch;
          options.most_stages = stages;
          options.exact_stages = stages > 0;
          const Found found = Search(costs, name, options);
          absl::StrAppend(&text, " ", found.plan, " |");
          if (stages == 0) absl::StrAppendFormat(&text, " %.2f |", found.over_data_parallel);
        }
      }
      absl::StrAppend(&text, "\n");
    }
  }
  return text;
}

std::string TableVII() {
  std::string text =
      "\n## Table VII: two servers of eight\n\nThe published program's objective and constants "
      "(docs/planners/dapple.md).\n\n| model | paper's DAPPLE plan | found |\n|---|---|---|\n";
  const auto found = [&](const char* file, int64_t micro_batch, int64_t micro_batches,
                         int32_t copies) {
    const Graph graph = LoadProfile(SharedGraph(file));
    const ChainCosts costs =
        ProfiledChain(graph, graph.dag().order(), static_cast<double>(micro_batch));
    const CodedNetwork network({8, 8});
    Placements placements(std::vector<int32_t>{8, 8});
    SearchOptions options;
    options.ranking = Ranking::kCoded;
    options.copies = copies;
    options.micro_batches = micro_batches;
    return Describe(SearchChain(costs, network, placements, options, SearchContext()).plans[0],
                    placements);
  };
  absl::StrAppend(&text, "| VGG-19 (1024) | 14 : 2 split at 16 | ",
                  found("dapple/vgg-19-pbs-32.txt", 32, 32, 1), " |\n");
  absl::StrAppend(&text, "| BERT-48 (128), for BERT-Large | 8 : 8 | ",
                  found("dapple/bert-48-pbs-2.txt", 2, 8, 8), " |\n");
  return text;
}

int Main(const std::string& folder) {
  for (const Row& row : Rows()) {
    if (!SharedGraph(row.file).empty()) continue;
    std::printf("without the profile %s, dapple.md stays as it is\n", row.file);
    return 0;
  }
  const std::string text = absl::StrCat(
      "# DAPPLE, tables V and VII\n\nPlans of the planner `dapple` on the profiles that its "
      "authors "
      "published; there are none of ResNet-50, XLNet-36,\nAmoebaNet-36 and BERT-Large. Written by "
      "`scripts/bench.sh figures`.\n",
      TableV(), TableVII(),
      "\nAs coded, nothing that the paper prints has a lower latency than what the search finds "
      "(`dapple_paper_test.cc`).\n");
  std::ofstream file(folder + "/dapple.md");
  file << text;
  std::printf("%s", text.c_str());
  if (file) return 0;
  std::fprintf(stderr, "figures_dapple_bench: cannot write to %s\n", folder.c_str());
  return 1;
}

}  // namespace
}  // namespace stagewright::dapple

int main(int argc, char** argv) {
  CLI::App app("The counterparts of DAPPLE's tables V and VII");
  std::string folder = "docs/results";
  app.add_option("--out", folder, "folder to write to")->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);
  return stagewright::dapple::Main(folder);
}
