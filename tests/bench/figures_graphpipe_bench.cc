// The counterparts of GraphPipe's figures 6, 7, 8 and 10 and of table 1, on the Summit preset with
// the mini-batches of appendix A.2. Writes graphpipe-*.svg and graphpipe.md.
//
//   figures_graphpipe_bench --out FOLDER [--graphs examples/graphs] [--devices 4,8,16,32]
//
// Everything but the search times of table 1 is the same in every run.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/bench/figure_case.h"
#include "tests/bench/graphpipe/figures.h"

namespace stagewright::bench {

void WritePicture(const FigureSetting& setting, const std::string& name, const std::string& svg) {
  std::ofstream(absl::StrCat(setting.out, "/", name, ".svg")) << svg;
}

namespace {

std::string Head() {
  const Cluster summit = Summit(4);
  const DeviceKind& kind = summit.kinds()[0];
  return absl::StrFormat(
      "# GraphPipe's figures 6, 7, 8 and 10 and table 1\n\n"
      "Written by `scripts/bench.sh figures`; everything is simulated. What every row assumes:\n\n"
      "- *Costs* are analytic (docs/clusters.md): preset `summit`, device kind `%s`, %.1f GiB a "
      "device, fp32 tensors,\n  tensors freed as soon as they can be.\n"
      "- *Optimizer*: Adam. *Mini-batches*: those of appendix A.2, in the tables.\n"
      "- *Micro-batches*, numbers of stages, replicas and recomputation are each planner's choice "
      "unless a heading says otherwise.\n"
      "- *GPP* is the planner `graphpipe`, *SPP* the planner `sequential`: the same search over "
      "the linearised model. PipeDream and\n  Piper are this project's planners of these names; "
      "they let the simulator choose among the best plans by their objectives,\n  which the "
      "published programs do not.\n"
      "- *Sums* of gradients either follow the last backward pass of a stage, as in FlexFlow, on "
      "which the paper measured, or overlap\n  with it in buckets, as `DistributedDataParallel` "
      "and "
      "this project's workers do. A heading or column says which.\n",
      kind.name, static_cast<double>(summit.devices()[0].memory) / static_cast<double>(kGiB));
}

int Main(const FigureSetting& setting) {
  std::string text = Head();
  for (const auto part : {&Figures6And8, &Figure7, &Figure10}) text += part(setting);
  std::ofstream file(setting.out + "/graphpipe.md");
  file << text;
  std::printf("%s", text.c_str());
  if (file) return 0;
  std::fprintf(stderr, "figures_graphpipe_bench: cannot write to %s\n", setting.out.c_str());
  return 1;
}

}  // namespace
}  // namespace stagewright::bench

int main(int argc, char** argv) {
  CLI::App app("The counterparts of GraphPipe's figures 6, 7, 8 and 10 and table 1");
  stagewright::bench::FigureSetting setting{"docs/results", "examples/graphs", {4, 8, 16, 32}};
  app.add_option("--out", setting.out, "folder to write to")->check(CLI::ExistingDirectory);
  app.add_option("--graphs", setting.graphs, "folder of the .swg files");
  app.add_option("--devices", setting.devices, "of figure 6")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  return stagewright::bench::Main(setting);
}
