// Figure 7: the gain by branches of CANDLE-Uno, and by micro-batch size of MMT.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/chart.h"
#include "tests/bench/figure_case.h"
#include "tests/bench/graphpipe/figures.h"

namespace stagewright::bench {
namespace {

constexpr int32_t kDevices[] = {4, 8, 16};

double Milliseconds(const FigureCase& c, const char* planner, const PlanOptions& options) {
  const auto run = c.Solve(planner, options);
  return run ? run->ms() : std::numeric_limits<double>::quiet_NaN();
}

std::string ByBranches(const FigureSetting& setting) {
  std::vector<Panel> panels;
  std::string text =
      "\n## Figure 7\n\n![Gain by branches](graphpipe-figure-7-branches.svg)\n\n"
      "CANDLE-Uno, top 256, captured with 2 to 16 branches; mini-batches of 1,024 a device; "
      "micro-batches are each planner's choice; sums\nfollow the backward pass. GPP over SPP, and "
      "over PipeDream (paper: up to 2 at 16 branches).\n\n"
      "| branches | replicas | 4 devices | 8 devices | 16 devices |\n|---|---|---|---|---|\n";
  for (bool replicas : {false, true}) {
    Panel panel{replicas ? "with replicas, over SPP" : "one device a stage, over SPP",
                "branches",
                {},
                {{"4 devices", {}}, {"8 devices", {}}, {"16 devices", {}}},
                false,
                1};
    PlanOptions options;
    options.allow_replicas = replicas;
    for (int32_t branches : {2, 4, 8, 16}) {
      panel.labels.push_back(absl::StrCat(branches));
      absl::StrAppendFormat(&text, "| %d | %s |", branches, replicas ? "yes" : "no");
      for (size_t d = 0; d < std::size(kDevices); ++d) {
        const FigureCase c(ReadExample(setting.graphs, absl::StrCat("candle-uno-b", branches)),
                           Summit(kDevices[d]), int64_t{1024} * kDevices[d], Sums::kAfterBackward);
        const double graph = Milliseconds(c, "graphpipe", options);
        const double gain = Milliseconds(c, "sequential", options) / graph;
        panel.series[d].values.push_back(gain);
        absl::StrAppendFormat(&text, " %.2f, %.2f |", gain,
                              Milliseconds(c, "pipedream", options) / graph);
      }
      absl::StrAppend(&text, "\n");
    }
    panels.push_back(std::move(panel));
  }
  WritePicture(setting, "graphpipe-figure-7-branches", Chart(panels));
  return text;
}

std::string BySize(const FigureSetting& setting) {
  Panel panel{"MMT, 8 devices, mini-batch 128",
              "micro-batch (samples/s)",
              {},
              {{"SPP", {}}, {"GraphPipe", {}}}};
  std::string text =
      "\n![Throughput by micro-batch](graphpipe-figure-7-micro-batches.svg)\n\n"
      "MMT on 8 devices, a mini-batch of 128, micro-batches as given.\n\n"
      "| micro-batch | SPP, samples/s | GPP, samples/s | gain |\n|---|---|---|---|\n";
  const FigureCase c(ReadExample(setting.graphs, "mmt"), Summit(8), 128, Sums::kAfterBackward);
  for (int64_t size : {1, 2, 4, 8, 16, 32}) {
    PlanOptions options;
    options.micro_batch = size;
    const double base = 128e3 / Milliseconds(c, "sequential", options);
    const double best = 128e3 / Milliseconds(c, "graphpipe", options);
    panel.labels.push_back(absl::StrCat(size));
    panel.series[0].values.push_back(base);
    panel.series[1].values.push_back(best);
    absl::StrAppendFormat(&text, "| %d | %.1f | %.1f | %.2f |\n", size, base, best, best / base);
  }
  WritePicture(setting, "graphpipe-figure-7-micro-batches", Chart({panel}));
  return text;
}

}  // namespace

std::string Figure7(const FigureSetting& setting) {
  return absl::StrCat(ByBranches(setting), BySize(setting));
}

}  // namespace stagewright::bench
