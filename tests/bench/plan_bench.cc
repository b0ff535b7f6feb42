// How long searches take: every row of the table in docs/benchmarks.md ("Plan/..."), the default
// planner on problems of many shapes ("Shape/..."), how soon it is near what a minute finds
// ("Soon/...", over a minute each), and how search time grows with the model
// ("Growth/PLANNER/layers/N", "Growth/PLANNER/branches/N").
//
//   plan_bench [--graphs FOLDER] [flags of Google Benchmark, as --benchmark_filter=Plan/pfeife]
//
// The time is the best of three searches on one thread, processor time where that is less; of fewer
// where growth is looked at and a search is slow, so that all of it takes a few minutes.
// plan_report.py makes tables and plots of the JSON output. Counters: `must` and `aim` in seconds,
// `peak_mib` the most memory that the process held. The label has what the published planner takes
// and what ours found. Profiles that are not there (tests/README.md) are skipped.
#include <benchmark/benchmark.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/plan_rows.h"

namespace stagewright::bench {
namespace {

// From here on, the peak that PeakMib tells is a new one, without what earlier searches left in the
// heap. Linux only; elsewhere nothing happens.
void ForgetPeak() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  std::ofstream("/proc/self/clear_refs") << 5;
}

double PeakMib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (absl::StartsWith(line, "VmHWM:")) return std::atof(line.c_str() + 6) / 1024;
  }
  return 0;
}

constexpr int kSearches = 3;
// Searches of one size that growth is fitted to stop after this.
constexpr double kGrowthSeconds = 2;

// The best of kSearches, or of those that begin within `budget` seconds, as the one iteration.
void Run(::benchmark::State& state, const std::function<absl::StatusOr<Search>()>& prepare,
         const std::string& label, double budget) {
  const absl::StatusOr<Search> search = prepare();
  if (!search.ok()) {
    state.SkipWithError(std::string(search.status().message()).c_str());
    return;
  }
  std::string text;
  ForgetPeak();
  for (auto _ : state) {
    double best = std::numeric_limits<double>::infinity();
    double spent = 0;
    for (int i = 0; i < kSearches && (i == 0 || spent < budget); ++i) {
      const absl::StatusOr<Finding> finding = (*search)();
      if (!finding.ok()) {
        state.SkipWithError(finding.status().ToString().c_str());
        return;
      }
      best = std::min(best, finding->seconds);
      spent += finding->seconds;
      text = finding->text;
    }
    state.SetIterationTime(best);
  }
  state.counters["peak_mib"] = PeakMib();
  state.SetLabel(absl::StrCat(label, text));
}

void Register(const std::string& graphs) {
  const auto once = [](::benchmark::internal::Benchmark* benchmark) {
    benchmark->Iterations(1)->UseManualTime()->Unit(::benchmark::kMillisecond);
  };
  const auto add = [&](const std::string& table, const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      once(::benchmark::RegisterBenchmark(
          absl::StrCat(table, "/", row.name).c_str(), [row](::benchmark::State& state) {
            state.counters["must"] = row.must;
            state.counters["aim"] = row.aim;
            Run(state, row.prepare, absl::StrCat(row.problem, "|", row.original, "|"), row.enough);
          }));
    }
  };
  add("Plan", PlannerRows(graphs));
  add("Plan", PublishedRows());
  add("Shape", ShapeRows(graphs));
  add("Soon", SoonRows(graphs));
  for (const Growth& growth : Growths()) {
    once(::benchmark::RegisterBenchmark(
        absl::StrCat("Growth/", growth.planner, "/", growth.what, "/", growth.size).c_str(),
        [growth](::benchmark::State& state) { Run(state, growth.prepare, "", kGrowthSeconds); }));
  }
}

}  // namespace
}  // namespace stagewright::bench

int main(int argc, char** argv) {
  std::string graphs = "examples/graphs";
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::string(argv[i]) != "--graphs") continue;
    graphs = argv[i + 1];
    for (int j = i; j + 2 < argc; ++j) argv[j] = argv[j + 2];
    argc -= 2;
    break;
  }
  stagewright::bench::Register(graphs);
  ::benchmark::Initialize(&argc, argv);
  if (::benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  ::benchmark::RunSpecifiedBenchmarks();
  return 0;
}
