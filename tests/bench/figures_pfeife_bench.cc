// The counterpart of Pfeife's figure 4: how uneven slices and prefetch shorten a 1F1B schedule of
// 15 equal operators on three devices; and its table 5 as printed. Writes pfeife-figure-4.svg,
// pfeife-figure-4.md and pfeife-table-5.md.
//
//   figures_pfeife_bench --out FOLDER
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/cost/analytic.h"
#include "planner_service/planners/pfeife/split_search.h"
#include "tests/bench/pfeife_table_5.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright::pfeife {
namespace {

constexpr int32_t kOperators = 15;
constexpr int32_t kDevices = 3;
constexpr int32_t kMicroBatches = 3;
constexpr double kScale = 9;  // Pixels per ms.
constexpr double kRow = 18;

struct Step {
  std::string what;
  LoopedShape shape;
  std::vector<int32_t> points;
};

std::string Box(double x, double y, double width, const SlicePass& pass, bool critical) {
  return absl::StrFormat(
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" fill=\"%s\" stroke=\"%s\" "
      "stroke-width=\"%d\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>\n",
      x, y, width, kRow - 3, pass.backward ? "#9bc59d" : "#b7cdec", critical ? "#d62728" : "#555",
      critical ? 2 : 1, x + width / 2, y + kRow - 7, pass.micro_batch + 1);
}

// One schedule as a row per device, the critical path framed in red.
std::string Schedule(ChainModel& model, const Step& step, double top, double& time) {
  DependencyGraph graph = DependencyGraph::Create(step.shape).value();
  SliceCosts costs;
  model.Slices(step.points, {0, 1, 2}, costs);
  time = graph.LongestPath(costs) * 1e-6;
  std::set<std::tuple<int32_t, int32_t, bool>> critical;
  for (const SlicePass& pass : graph.CriticalPasses()) {
    critical.insert({pass.slice, pass.micro_batch, pass.backward});
  }
  std::string svg =
      absl::StrFormat("<text x=\"10\" y=\"%.1f\" font-weight=\"bold\">%s: %.1f ms</text>\n",
                      top + 12, step.what, time);
  for (int32_t r = 0; r < kDevices; ++r) {
    const double y = top + 20 + r * kRow;
    absl::StrAppendFormat(&svg, "<text x=\"10\" y=\"%.1f\">%d operators</text>\n", y + kRow - 7,
                          step.points[r + 1] - step.points[r]);
  }
  for (const auto& passes : DevicePasses(step.shape)) {
    for (const SlicePass& pass : passes) {
      const double length = (pass.backward ? costs.backward : costs.forward)[pass.slice] * 1e-6;
      svg += Box(95 + graph.Start(pass) * 1e-6 * kScale,
                 top + 20 + step.shape.device_of(pass.slice) * kRow, length * kScale, pass,
                 critical.count({pass.slice, pass.micro_batch, pass.backward}) > 0);
    }
  }
  return svg;
}

Step BestOf(SplitSearch& search, const std::string& what, const std::vector<LoopedShape>& shapes,
            const std::vector<int32_t>& start) {
  Step best{what, shapes.front(), start};
  double time = search.TimeOf(best.shape, start);
  for (const LoopedShape& shape : shapes) {
    const auto found = search.Run(shape, {start});
    if (found.empty() || found.front().time >= time) continue;
    time = found.front().time;
    best = {what, shape, found.front().points};
  }
  return best;
}

// The best that moving the first split point alone finds.
Step FirstMove(SplitSearch& search, const Step& from) {
  Step best = from;
  best.what = "first split point moved";
  for (int32_t p = 1; p < from.points[2]; ++p) {
    std::vector<int32_t> points = from.points;
    points[1] = p;
    if (search.TimeOf(from.shape, points) < search.TimeOf(best.shape, best.points)) {
      best.points = points;
    }
  }
  return best;
}

int Main(const std::string& folder) {
  const Graph graph =
      testing::ProfiledChain(kOperators, {kMillisecond, 2 * kMillisecond, kMiB, kMiB, {}});
  const Cluster cluster = testing::FlatCluster(kDevices, 64 * kGiB, 20 * kMicrosecond, 12.5e9);
  const OperatorGraph operators = OneOperatorPerNode(graph).value();
  const auto costs = MakeAnalyticCostModel(graph);
  const Problem problem{&graph, &operators, &cluster, costs.get(), kMicroBatches};
  const OperatorCosts table(problem);
  ChainModel model(table, operators.dag().order(), 1);
  SearchContext context;
  Effort effort;
  effort.most_passes = int64_t{1} << 40;
  SplitSearch search(model, {0, 1, 2}, {}, context, effort);

  const LoopedShape plain = MakeShape(kDevices, 1, kMicroBatches, kMicroBatches, 0);
  std::vector<Step> steps = {{"even slices", plain, model.EvenTime(kDevices)}};
  steps.push_back(FirstMove(search, steps[0]));
  steps.push_back(BestOf(search, "best slices", {plain}, steps[1].points));
  steps.push_back(BestOf(search, "best slices with prefetch",
                         PossibleShapes(kDevices, 1, kMicroBatches), steps[2].points));

  std::string svg;
  std::string rows;
  double first = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    double time = 0;
    svg += Schedule(model, steps[i], 10 + static_cast<double>(i) * (kDevices * kRow + 35), time);
    if (i == 0) first = time;
    absl::StrAppendFormat(
        &rows, "| %s | (%s) | %s | %.2f | %.1f %% |\n", steps[i].what,
        absl::StrJoin(steps[i].points.begin() + 1, steps[i].points.end() - 1, ", "),
        absl::StrJoin(steps[i].shape.warm_up, ", "), time, 100 * (1 - time / first));
  }
  std::ofstream(folder + "/pfeife-figure-4.svg") << absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%%\" "
      "height=\"100%%\" fill=\"white\"/>\n%s</svg>\n",
      110 + first * kScale, 10 + 4 * (kDevices * kRow + 35), svg);
  std::ofstream out(folder + "/pfeife-figure-4.md");
  out << "# Pfeife, figure 4: uneven slices and prefetch\n\n"
         "![Four schedules](pfeife-figure-4.svg)\n\n"
         "15 equal operators (1 ms forward, 2 ms backward) on three devices, 1F1B, "
      << kMicroBatches
      << " micro-batches, 1 MiB\nover 12.5 GB/s and 0.02 ms a link. By the estimate of the "
         "dependency graph, whose longest path is framed in red.\n\n"
         "| schedule | split points | warm-up | ms | shorter |\n|---|---|---|---|---|\n"
      << rows
      << "\nAs in the paper, the first and then the second split point move, the best cuts are "
         "(6, 11) and give the last device\nthe least, and prefetch shortens the schedule once "
         "more. The paper tells neither the times of its operators nor its\nlink, so latencies "
         "differ. Written by `scripts/bench.sh figures`.\n";
  std::ofstream printed(folder + "/pfeife-table-5.md");
  printed << bench::PfeifeTable5();
  if (!out || !printed) {
    std::fprintf(stderr, "figures_pfeife_bench: cannot write to %s\n", folder.c_str());
    return 1;
  }
  std::printf("%s", rows.c_str());
  return 0;
}

}  // namespace
}  // namespace stagewright::pfeife

int main(int argc, char** argv) {
  CLI::App app("The counterpart of Pfeife's figure 4");
  std::string folder = "docs/results";
  app.add_option("--out", folder, "folder to write to")->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);
  return stagewright::pfeife::Main(folder);
}
