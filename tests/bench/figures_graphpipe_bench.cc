// The counterparts of GraphPipe's figures 6, 7, 8 and 10 and of table 1, on the Summit preset with
// the mini-batches of appendix A.2. Writes graphpipe-*.svg and graphpipe.md.
//
//   figures_graphpipe_bench --out FOLDER [--graphs examples/graphs] [--devices 4,8,16,32]
//
// Everything but the search times of table 1 is the same in every run.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/cost/analytic.h"
#include "common/cost/node_weights.h"
#include "common/topology/presets.h"
#include "common/wire/graph_file.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/planners/graphpipe/graphpipe.h"
#include "tests/bench/chart.h"
#include "tests/support/model_graphs.h"

namespace stagewright {
namespace {

using bench::Chart;
using bench::Panel;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct Run {
  Strategy strategy;
  Evaluation evaluation;
  double search_seconds = 0;
  double seconds() const { return ToSeconds(evaluation.iteration_time); }
};

// A model on a cluster, coarsened as the front door does.
struct Case {
  Case(Graph the_graph, Cluster the_cluster, int64_t mini_batch)
      : graph(std::move(the_graph)),
        cluster(std::move(the_cluster)),
        costs(MakeAnalyticCostModel(graph)),
        operators(graph.nodes()[0].cost
                      ? *OneOperatorPerNode(graph)
                      : *Coarsen(graph, NodeWeights(graph, *costs, cluster.kinds()[0],
                                                    std::max<int64_t>(
                                                        1, mini_batch / (2 * cluster.size()))))),
        problem{&graph, &operators, &cluster, costs.get(), mini_batch} {
    // FlexFlow sums the gradients of a stage after its last backward pass.
    problem.bucket_bytes = Bytes{int64_t{1} << 50};
  }
  Case(const Case&) = delete;

  // Seconds of an iteration, or NaN where nothing fits.
  double Seconds(const Planner& planner, const PlanOptions& options, Run* details = nullptr) const {
    SearchContext context;
    const auto start = SearchContext::Clock::now();
    const auto outcome = planner.Solve(problem, options, context);
    const std::chrono::duration<double> searched = SearchContext::Clock::now() - start;
    if (!outcome.ok() || !outcome->strategy) return kNone;
    EvaluateOptions judge;
    judge.optimizer = problem.optimizer;
    judge.timeline = details != nullptr;
    auto evaluation = Evaluate(graph, cluster, *costs, *outcome->strategy, judge);
    if (!evaluation.ok()) return kNone;
    const double seconds = ToSeconds(evaluation->iteration_time);
    if (details != nullptr) {
      *details = {*outcome->strategy, *std::move(evaluation), searched.count()};
    }
    return seconds;
  }

  Graph graph;
  Cluster cluster;
  std::unique_ptr<CostModel> costs;
  OperatorGraph operators;
  Problem problem;
};

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
      {"CANDLE-Uno", "candle-uno", 1024, {0.19, 1.43, 6.14, 22.37}},
      {"Transformer", "transformer", 16, {}}};
  return models;
}

Cluster Summit(int32_t devices) { return *ClusterPreset(absl::StrCat("summit:", devices / 4)); }

std::string Size(const Run& run) {
  int64_t least = run.strategy.stages[0].micro_batch;
  int64_t most = least;
  for (const Stage& stage : run.strategy.stages) {
    least = std::min(least, stage.micro_batch);
    most = std::max(most, stage.micro_batch);
  }
  return least == most ? absl::StrCat(least) : absl::StrCat(least, " to ", most);
}

class Figures {
 public:
  Figures(std::string out, std::string graphs, std::vector<int32_t> devices)
      : out_(std::move(out)), graphs_(std::move(graphs)), devices_(std::move(devices)) {}

  int Run() {
    Figures6And8();
    Figure7Branches();
    Figure7Sizes();
    Figure10();
    std::ofstream file(out_ + "/graphpipe.md");
    file << "# GraphPipe's figures 6, 7, 8 and 10 and table 1\n\n"
            "Simulated on the Summit preset (docs/clusters.md) with analytic costs, Adam, fp32 "
            "tensors; mini-batches of appendix A.2.\nSPP is the planner `sequential`, GPP "
            "`graphpipe`. Sums of gradients follow the last backward pass of a stage, as in "
            "FlexFlow.\nWritten by `scripts/bench.sh figures`.\n"
         << text_;
    std::printf("%s", text_.c_str());
    if (file) return 0;
    std::fprintf(stderr, "figures_graphpipe_bench: cannot write to %s\n", out_.c_str());
    return 1;
  }

 private:
  void Write(const std::string& name, const std::string& svg) {
    std::ofstream(absl::StrCat(out_, "/", name, ".svg")) << svg;
  }

  void Figures6And8() {
    const auto gpp = MakeGraphPipePlanner();
    const auto spp = MakeSequentialPlanner();
    std::vector<Panel> throughput;
    Panel ablation{"32 devices", "throughput over SPP",
                   {},           {{"SPP", {}}, {"parallel", {}}, {"GraphPipe", {}}},
                   true,         1};
    absl::StrAppend(&text_,
                    "\n## Figures 6 and 8, table 1, appendix A.3\n\n"
                    "![Throughput by devices](graphpipe-figure-6.svg)\n\n"
                    "![Gain at 32 devices](graphpipe-figure-8.svg)\n\n"
                    "*Parallel*: graph pipelines at the micro-batch that SPP chose.\n\n"
                    "| model | devices | SPP, ms | GPP, ms | parallel | gain | depth SPP / "
                    "GPP | micro-batch SPP / GPP | search, s | paper's search, s |\n"
                    "|---|---|---|---|---|---|---|---|---|---|\n");
    for (const Model& model : Models()) {
      Panel panel{model.title, "devices", {}, {{"SPP", {}}, {"GraphPipe", {}}}};
      for (int32_t devices : devices_) {
        const Case c(*ReadGraphFile(absl::StrCat(graphs_, "/", model.file, ".swg")),
                     Summit(devices), model.per_device * devices);
        stagewright::Run chain;
        stagewright::Run graph;
        const double base = c.Seconds(*spp, {}, &chain);
        const double best = c.Seconds(*gpp, {}, &graph);
        PlanOptions same;
        same.micro_batch = chain.strategy.stages[0].micro_batch;
        const double parallel = base / c.Seconds(*gpp, same);
        const auto samples = static_cast<double>(c.problem.mini_batch);
        panel.labels.push_back(absl::StrCat(devices));
        panel.series[0].values.push_back(samples / base);
        panel.series[1].values.push_back(samples / best);
        if (devices == 32 && !model.paper_table.empty()) {
          ablation.labels.push_back(model.title);
          ablation.series[0].values.push_back(1);
          ablation.series[1].values.push_back(parallel);
          ablation.series[2].values.push_back(base / best);
        }
        const size_t row = std::countr_zero(static_cast<uint32_t>(devices)) - 2;
        const std::string paper =
            row < model.paper_table.size() ? absl::StrCat(model.paper_table[row]) : std::string();
        absl::StrAppendFormat(&text_,
                              "| %s | %d | %.1f | %.1f | %.2f | %.2f | %d / %d | %s / %s | %.3f | "
                              "%s |\n",
                              model.title, devices, base * 1e3, best * 1e3, parallel, base / best,
                              chain.evaluation.depth, graph.evaluation.depth, Size(chain),
                              Size(graph), graph.search_seconds, paper);
      }
      throughput.push_back(std::move(panel));
    }
    for (Panel& panel : throughput) panel.title += ", samples/s";
    Write("graphpipe-figure-6", Chart(throughput));
    if (!ablation.labels.empty()) Write("graphpipe-figure-8", Chart({ablation}));
  }

  void Figure7Branches() {
    const std::vector<int32_t> branches = {2, 4, 8, 16};
    Panel panel{"CANDLE-Uno by branches",
                "branches",
                {},
                {{"4 devices", {}}, {"8 devices", {}}, {"16 devices", {}}},
                false,
                1};
    absl::StrAppend(
        &text_,
        "\n## Figure 7\n\n![Gain by branches](graphpipe-figure-7-branches.svg)\n\n![Throughput by "
        "micro-batch]"
        "(graphpipe-figure-7-micro-batches.svg)\n\nOne device a stage, micro-batches of 512.\n\n| "
        "branches | 4 devices | "
        "8 devices | 16 "
        "devices |\n|---|---|---|---|\n");
    for (int32_t b : branches) {
      panel.labels.push_back(absl::StrCat(b));
      absl::StrAppendFormat(&text_, "| %d |", b);
      for (size_t i = 0; i < panel.series.size(); ++i) {
        const int32_t devices = 4 << i;
        const Case c(testing::CandleGraph(b, 4), Summit(devices), 1024 * devices);
        PlanOptions options;
        options.allow_replicas = false;
        options.micro_batch = 512;  // The times know no least efficient size; SPP's choice above.
        const double gain = c.Seconds(*MakeSequentialPlanner(), options) /
                            c.Seconds(*MakeGraphPipePlanner(), options);
        panel.series[i].values.push_back(gain);
        absl::StrAppendFormat(&text_, " %.2f |", gain);
      }
      absl::StrAppend(&text_, "\n");
    }
    figure_7_.push_back(std::move(panel));
  }

  void Figure7Sizes() {
    Panel panel{"MMT, 8 devices, mini-batch 128",
                "micro-batch (samples/s)",
                {},
                {{"SPP", {}}, {"GraphPipe", {}}}};
    absl::StrAppend(&text_,
                    "\n| micro-batch | SPP, samples/s | GPP, samples/s | gain |\n"
                    "|---|---|---|---|\n");
    const Case c(*ReadGraphFile(graphs_ + "/mmt.swg"), Summit(8), 128);
    for (int64_t size : {1, 2, 4, 8, 16, 32}) {
      PlanOptions options;
      options.micro_batch = size;
      const double base = c.Seconds(*MakeSequentialPlanner(), options);
      const double best = c.Seconds(*MakeGraphPipePlanner(), options);
      panel.labels.push_back(absl::StrCat(size));
      panel.series[0].values.push_back(128 / base);
      panel.series[1].values.push_back(128 / best);
      absl::StrAppendFormat(&text_, "| %d | %.1f | %.1f | %.2f |\n", size, 128 / base, 128 / best,
                            base / best);
    }
    figure_7_.push_back(std::move(panel));
    Write("graphpipe-figure-7-branches", Chart({figure_7_[0]}));
    Write("graphpipe-figure-7-micro-batches", Chart({figure_7_[1]}));
  }

  // The rows of a timeline: a box per forward and backward pass.
  static std::string Rows(const stagewright::Run& run, double top, double scale) {
    std::string svg;
    for (const TraceEvent& event : run.evaluation.simulation.timeline) {
      const bool forward = event.action.kind == ActionKind::kForward;
      if (!forward && event.action.kind != ActionKind::kBackward) continue;
      const auto row = static_cast<double>(event.device.value());
      const double x = 70 + static_cast<double>(event.start) * scale;
      absl::StrAppendFormat(&svg,
                            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"13\" fill=\"%s\" "
                            "stroke=\"#555\" stroke-width=\"0.4\"/>\n",
                            x, top + row * 15, static_cast<double>(event.end - event.start) * scale,
                            forward ? "#b7cdec" : "#9bc59d");
    }
    for (int32_t d = 0; d < 8; ++d) {
      absl::StrAppendFormat(&svg, "<text x=\"8\" y=\"%.1f\">device %d</text>\n", top + d * 15 + 11,
                            d);
    }
    return svg;
  }

  void Figure10() {
    ClusterData data = Summit(8).data();
    for (Device& device : data.devices) device.memory = 490 * kMiB;
    const Case c(*ReadGraphFile(graphs_ + "/case-study.swg"), *Cluster::Create(data), 64);
    stagewright::Run chain;
    stagewright::Run graph;
    PlanOptions options;
    options.num_stages = 8;
    const double base = c.Seconds(*MakeSequentialPlanner(), options, &chain);
    const double best = c.Seconds(*MakeGraphPipePlanner(), options, &graph);
    const double scale = 900 / static_cast<double>(chain.evaluation.iteration_time);
    const std::string body =
        "<text x=\"8\" y=\"16\" font-weight=\"bold\">SPP</text>\n" + Rows(chain, 24, scale) +
        "<text x=\"8\" y=\"172\" font-weight=\"bold\">GraphPipe</text>\n" + Rows(graph, 180, scale);
    Write("graphpipe-figure-10",
          absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"990\" height=\"310\" "
                       "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" "
                       "height=\"100%\" fill=\"white\"/>\n",
                       body, "</svg>\n"));
    absl::StrAppendFormat(
        &text_,
        "\n## Figure 10\n\n![The case study's two schedules](graphpipe-figure-10.svg)\n\n"
        "Eight stages, a mini-batch of 64, 490 MiB a device: SPP depth %d, micro-batch %s, %.1f "
        "ms; "
        "GPP depth %d,\nmicro-batch %s, %.1f ms: %.2f.\n",
        chain.evaluation.depth, Size(chain), base * 1e3, graph.evaluation.depth, Size(graph),
        best * 1e3, base / best);
  }

  std::string out_;
  std::string graphs_;
  std::vector<int32_t> devices_;
  std::vector<Panel> figure_7_;
  std::string text_;
};

}  // namespace
}  // namespace stagewright

int main(int argc, char** argv) {
  CLI::App app("The counterparts of GraphPipe's figures 6, 7, 8 and 10 and table 1");
  std::string out = "docs/results";
  std::string graphs = "examples/graphs";
  std::vector<int32_t> devices = {4, 8, 16, 32};
  app.add_option("--out", out, "folder to write to")->check(CLI::ExistingDirectory);
  app.add_option("--graphs", graphs, "folder of the .swg files");
  app.add_option("--devices", devices, "of figure 6")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  return stagewright::Figures(out, graphs, devices).Run();
}
