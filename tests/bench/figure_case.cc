#include "tests/bench/figure_case.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/cost/analytic.h"
#include "common/cost/node_weights.h"
#include "common/topology/presets.h"
#include "common/wire/graph_file.h"
#include "planner_service/front_door/planner_table.h"
#include "tests/bench/plan_rows.h"

namespace stagewright::bench {
namespace {

template <typename T>
T Checked(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

// More than all gradients of a model: one bucket a stage.
constexpr Bytes kOneBucket = Bytes{int64_t{1} << 50};

}  // namespace

std::string Run::MicroBatch() const {
  const auto [least, most] = std::minmax_element(
      strategy.stages.begin(), strategy.stages.end(),
      [](const Stage& a, const Stage& b) { return a.micro_batch < b.micro_batch; });
  if (least->micro_batch == most->micro_batch) return absl::StrCat(least->micro_batch);
  return absl::StrCat(least->micro_batch, " to ", most->micro_batch);
}

FigureCase::FigureCase(Graph graph, Cluster cluster, int64_t mini_batch, Sums sums)
    : graph_(std::move(graph)),
      cluster_(std::move(cluster)),
      costs_(MakeAnalyticCostModel(graph_)),
      operators_(Checked(
          Coarsen(graph_, NodeWeights(graph_, *costs_, cluster_.kinds()[0],
                                      std::max<int64_t>(1, mini_batch / (2 * cluster_.size())))))),
      problem_{&graph_, &operators_, &cluster_, costs_.get(), mini_batch} {
  if (sums == Sums::kAfterBackward) problem_.bucket_bytes = kOneBucket;
}

std::optional<Run> FigureCase::Solve(const std::string& planner, const PlanOptions& options) const {
  const std::unique_ptr<Planner> made = Checked(MakePlanner(planner));
  SearchContext context;
  const Stopwatch watch;
  Outcome outcome = Checked(made->Solve(problem_, options, context));
  const double searched = watch.Seconds();
  if (!outcome.strategy) return std::nullopt;
  EvaluateOptions judge;
  judge.optimizer = problem_.optimizer;
  judge.timeline = true;
  auto evaluation = Evaluate(graph_, cluster_, *costs_, *outcome.strategy, judge);
  if (!evaluation.ok()) return std::nullopt;
  return Run{*std::move(outcome.strategy), *std::move(evaluation), searched};
}

Graph ReadExample(const std::string& folder, const std::string& name) {
  return Checked(ReadGraphFile(absl::StrCat(folder, "/", name, ".swg")));
}

Cluster Summit(int32_t devices, Bytes memory) {
  Cluster summit = Checked(ClusterPreset(absl::StrCat("summit:", devices / 4)));
  if (memory == 0) return summit;
  ClusterData data = summit.data();
  for (Device& device : data.devices) device.memory = memory;
  return Checked(Cluster::Create(data));
}

}  // namespace stagewright::bench
