// Figures 6 and 8, table 1 and appendix A.3.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/bench/chart.h"
#include "tests/bench/figure_case.h"
#include "tests/bench/graphpipe/figures.h"

namespace stagewright::bench {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
// A gain under this is none.
constexpr double kAhead = 1.005;

struct Model {
  const char* title;
  const char* file;
  int64_t per_device;               // Samples of a mini-batch.
  std::vector<double> paper_table;  // Search seconds for 4, 8, 16, 32 devices.
};

const std::vector<Model>& Models() {
  static const std::vector<Model> models = {
      {"MMT", "mmt", 16, {0.12, 0.76, 3.00, 10.11}},
      {"DLRM", "dlrm", 64, {0.33, 2.73, 13.28, 54.6}},
      {"CANDLE-Uno with top 256", "candle-uno", 1024, {0.19, 1.43, 6.14, 22.37}},
      {"CANDLE-Uno with FlexFlow's top", "candle-uno-flexflow", 1024, {}},
      {"Transformer", "transformer", 16, {}}};
  return models;
}

struct Baseline {
  const char* name;
  double ms = kNone;
  std::string note = {};  // Behind the time.
};

struct Row {
  const Model* model;
  int32_t devices;
  int64_t mini_batch;
  std::optional<Run> gpp;
  std::optional<Run> spp;  // The answer of `sequential`.
  std::array<Baseline, 4> baselines;
  double auto_ms = kNone;

  double gpp_ms() const { return gpp ? gpp->ms() : kNone; }
  const Baseline& best() const {
    return *std::min_element(baselines.begin(), baselines.end(), [](const auto& a, const auto& b) {
      return a.ms < b.ms || (b.ms != b.ms && a.ms == a.ms);  // NaN last.
    });
  }
  double gain() const { return best().ms / gpp_ms(); }
  double auto_gain() const { return best().ms / auto_ms; }
};

double Milliseconds(const FigureCase& c, const std::string& planner,
                    const PlanOptions& options = {}) {
  const auto run = c.Solve(planner, options);
  return run ? run->ms() : kNone;
}

Row Measure(const FigureSetting& setting, const Model& model, int32_t devices, Sums sums) {
  const int64_t mini_batch = model.per_device * devices;
  const auto with = [&](Sums each) {
    return FigureCase(ReadExample(setting.graphs, model.file), Summit(devices), mini_batch, each);
  };
  const FigureCase c = with(sums);
  Row row{&model, devices, mini_batch, c.Solve("graphpipe"), c.Solve("sequential"), {}};
  PlanOptions chains;
  chains.sequential = true;
  Baseline sequential{"the best sequential plan", row.spp ? row.spp->ms() : kNone};
  const double searched = Milliseconds(c, "auto", chains);
  if (!(searched >= sequential.ms)) sequential = {sequential.name, searched, "\\*"};
  row.baselines = {
      Baseline{"PipeDream", Milliseconds(c, "pipedream")},
      Baseline{"Piper", Milliseconds(c, "piper")}, sequential,
      Baseline{"data parallelism", Milliseconds(with(Sums::kOverlapped), "data-parallel")}};
  if (sums == Sums::kOverlapped) row.auto_ms = Milliseconds(c, "auto");
  std::fprintf(stderr, "%s, %d devices\n", model.title, devices);
  return row;
}

std::string Cell(const Baseline& baseline, double gpp_ms) {
  return absl::StrFormat("%.1f%s (%.2f)", baseline.ms, baseline.note, baseline.ms / gpp_ms);
}

std::string Table(const std::vector<Row>& rows, bool with_auto) {
  std::string text = absl::StrCat(
      "| model | devices | mini-batch | GPP, ms | PipeDream | Piper | best sequential | data "
      "parallelism | GPP over the best |",
      with_auto ? " `auto`, ms | `auto` over the best |" : "",
      "\n|---|---|---|---|---|---|---|---|---|", with_auto ? "---|---|" : "", "\n");
  for (const Row& row : rows) {
    absl::StrAppendFormat(&text, "| %s | %d | %d | %.1f |", row.model->title, row.devices,
                          row.mini_batch, row.gpp_ms());
    for (const Baseline& baseline : row.baselines) {
      absl::StrAppend(&text, " ", Cell(baseline, row.gpp_ms()), " |");
    }
    absl::StrAppendFormat(&text, " %.2f |", row.gain());
    if (with_auto) absl::StrAppendFormat(&text, " %.1f | %.2f |", row.auto_ms, row.auto_gain());
    absl::StrAppend(&text, "\n");
  }
  return text;
}

// Where graphs of stages pay and where they do not, in two sentences. REQUIRES: rows with auto_ms.
std::string Headline(const std::vector<Row>& rows, int32_t most) {
  struct Planner {
    const char* name;
    std::vector<std::string> pays, fails;
  };
  Planner gpp{"GPP", {}, {}};
  Planner searched{"`auto`", {}, {}};
  for (const Row& row : rows) {
    if (row.devices != most) continue;
    for (auto& [planner, gain] : {std::pair{&gpp, row.gain()}, {&searched, row.auto_gain()}}) {
      (gain > kAhead ? planner->pays : planner->fails)
          .push_back(absl::StrFormat("%s (%.2f)", row.model->title, gain));
    }
  }
  const auto list = [](const std::vector<std::string>& models) {
    return models.empty() ? "no model" : absl::StrJoin(models, ", ");
  };
  return absl::StrFormat(
      "**Where graphs pay: on %d devices, over the best of the four baselines, GPP gains for %s, "
      "and "
      "`auto`, whose stages may share devices as those of `auto --sequential` do, for %s.**\n"
      "**Where they do not: GPP is not ahead for %s, and `auto` not for %s.**\n",
      most, list(gpp.pays), list(searched.pays), list(gpp.fails), list(searched.fails));
}

// The gains of figure 8's models over three baselines at the most devices.
std::string AsThePaperCounts(const std::vector<Row>& rows, int32_t most) {
  std::vector<std::string> gains;
  for (const Row& row : rows) {
    if (row.devices != most || row.model->paper_table.empty()) continue;
    gains.push_back(
        absl::StrFormat("%s %.2f", row.model->title,
                        std::min(row.baselines[0].ms, row.baselines[1].ms) / row.gpp_ms()));
  }
  return absl::StrFormat(
      "On %d devices GPP over the better of PipeDream and Piper: %s (paper: 1.25 "
      "to 1.61 at 32).\n",
      most, absl::StrJoin(gains, ", "));
}

std::string Pictures(const FigureSetting& setting, const std::vector<Row>& rows) {
  std::vector<Panel> panels;
  for (const Model& model : Models()) {
    Panel panel{absl::StrCat(model.title, ", samples/s"), "devices", {}, {}};
    for (const char* name :
         {"PipeDream", "Piper", "best sequential", "data parallelism", "GraphPipe"}) {
      panel.series.push_back({name, {}});
    }
    for (const Row& row : rows) {
      if (row.model != &model) continue;
      const double samples = 1e3 * static_cast<double>(row.mini_batch);
      panel.labels.push_back(absl::StrCat(row.devices));
      for (size_t b = 0; b < row.baselines.size(); ++b) {
        panel.series[b].values.push_back(samples / row.baselines[b].ms);
      }
      panel.series.back().values.push_back(samples / row.gpp_ms());
    }
    panels.push_back(std::move(panel));
  }
  WritePicture(setting, "graphpipe-figure-6", Chart(panels));
  return "\n![Throughput by devices](graphpipe-figure-6.svg)\n\n";
}

// Figure 8 and table 1: GPP beside the same search over the linearised model.
std::string Ablation(const FigureSetting& setting, const std::vector<Row>& rows, int32_t most) {
  Panel panel{absl::StrCat(most, " devices"),
              "throughput over SPP",
              {},
              {{"SPP", {}}, {"parallel", {}}, {"GraphPipe", {}}},
              true,
              1};
  std::string text =
      "\n## Figure 8, table 1, appendix A.3\n\n![Gain over SPP](graphpipe-figure-8.svg)\n\n"
      "The rows above with sums after the backward pass, beside SPP. *Parallel*: graph pipelines "
      "at the micro-batch that SPP chose.\nTable 1 of the paper timed finer graphs on another "
      "machine.\n\n"
      "| model | devices | SPP, ms | GPP, ms | parallel | gain | depth SPP / GPP | micro-batch "
      "SPP / GPP | search, s | paper's search, s |\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Row& row : rows) {
    if (!row.spp || !row.gpp) continue;
    const FigureCase c(ReadExample(setting.graphs, row.model->file), Summit(row.devices),
                       row.mini_batch, Sums::kAfterBackward);
    PlanOptions same;
    same.micro_batch = row.spp->strategy.stages[0].micro_batch;
    const double parallel = row.spp->ms() / Milliseconds(c, "graphpipe", same);
    const double gain = row.spp->ms() / row.gpp->ms();
    const size_t column = std::countr_zero(static_cast<uint32_t>(row.devices)) - 2;
    const std::vector<double>& paper = row.model->paper_table;
    absl::StrAppendFormat(
        &text, "| %s | %d | %.1f | %.1f | %.2f | %.2f | %d / %d | %s / %s | %.3f | %s |\n",
        row.model->title, row.devices, row.spp->ms(), row.gpp->ms(), parallel, gain,
        row.spp->evaluation.depth, row.gpp->evaluation.depth, row.spp->MicroBatch(),
        row.gpp->MicroBatch(), row.gpp->search_seconds,
        column < paper.size() ? absl::StrCat(paper[column]) : "");
    if (row.devices != most || paper.empty()) continue;
    const std::string title = row.model->title;
    panel.labels.push_back(title.substr(0, title.find(" with ")));
    panel.series[0].values.push_back(1);
    panel.series[1].values.push_back(parallel);
    panel.series[2].values.push_back(gain);
  }
  if (!panel.labels.empty()) WritePicture(setting, "graphpipe-figure-8", Chart({panel}));
  return text;
}

}  // namespace

std::string Figures6And8(const FigureSetting& setting) {
  const int32_t most = *std::max_element(setting.devices.begin(), setting.devices.end());
  std::vector<Row> paper;
  std::vector<Row> overlapped;
  for (const Model& model : Models()) {
    for (int32_t devices : setting.devices) {
      paper.push_back(Measure(setting, model, devices, Sums::kAfterBackward));
      overlapped.push_back(Measure(setting, model, devices, Sums::kOverlapped));
    }
  }
  return absl::StrCat(
      "\n## Figure 6, appendix A.3\n\n"
      "Behind a baseline's time, in ms, stands how many times as fast GPP is. *Best sequential* is "
      "SPP's plan, or with \\* that of\n`auto --sequential`, where it is faster; *data "
      "parallelism* is the planner `data-parallel`, always with sums that overlap.\n\n"
      "CANDLE-Uno is there twice. The paper's text gives seven branches of four layers of 4,096; "
      "*top 256* puts one layer of 256 behind\ntheir concatenation, so that the join is all "
      "traffic, and is the one in figures 7 and 8, table 1 and the other pages and tests;\n"
      "*FlexFlow's top* has four layers of 4,096 there, as the program that the paper measured, "
      "and stands only in the tables by devices.\n",
      "\n### Sums overlap: what a user has today\n\n", Headline(overlapped, most), "\n",
      Table(overlapped, true), "\n### Sums follow the backward pass: what the paper compares\n\n",
      AsThePaperCounts(paper, most), Pictures(setting, paper), Table(paper, false),
      Ablation(setting, paper, most));
}

}  // namespace stagewright::bench
