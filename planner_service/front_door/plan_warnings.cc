#include "planner_service/front_door/plan_warnings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/graph/series_parallel.h"

namespace stagewright {
namespace {

// "'a', 'b', 'c' and 4 more".
std::string SomeOf(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    absl::StrAppend(&text, i == 0 ? "'" : ", '", names[i], "'");
  }
  if (names.size() > kShown) absl::StrAppend(&text, " and ", names.size() - kShown, " more");
  return text;
}

void BatchDependence(const Graph& graph, const Strategy& strategy,
                     std::vector<std::string>& warnings) {
  std::vector<std::string> names;
  int64_t least = strategy.mini_batch;
  for (const Stage& stage : strategy.stages) {
    const auto replicas = static_cast<int64_t>(stage.devices.size());
    const int64_t share = stage.micro_batch / replicas;
    if (replicas == 1 && stage.micro_batch == strategy.mini_batch) continue;
    for (NodeId node : stage.nodes) {
      if (!graph.node(node).batch_dependent) continue;
      names.push_back(graph.node(node).name);
      least = std::min(least, share);
    }
  }
  if (names.empty()) return;
  warnings.push_back(absl::StrCat(
      names.size() == 1 ? "a layer depends" : "layers depend",
      " on which samples share a micro-batch, so results differ from a whole mini-batch of ",
      strategy.mini_batch, " at once (the plan runs as few as ", least,
      " samples): ", SomeOf(names)));
}

void IdleDevices(const Cluster& cluster, const Strategy& strategy,
                 std::vector<std::string>& warnings) {
  std::vector<bool> used(cluster.size());
  for (const Stage& stage : strategy.stages) {
    for (DeviceId device : stage.devices) used[device.index()] = true;
  }
  std::vector<std::string> idle;
  for (int32_t d = 0; d < cluster.size(); ++d) {
    if (!used[d]) idle.push_back(cluster.device(DeviceId(d)).name);
  }
  if (idle.empty()) return;
  warnings.push_back(absl::StrCat(
      idle.size(), " of ", cluster.size(),
      idle.size() == 1 ? " devices stays idle: " : " devices stay idle: ", SomeOf(idle)));
}

}  // namespace

std::vector<std::string> StrategyWarnings(const Graph& graph, const Cluster& cluster,
                                          const Strategy& strategy) {
  std::vector<std::string> warnings;
  BatchDependence(graph, strategy, warnings);
  IdleDevices(cluster, strategy, warnings);
  return warnings;
}

std::vector<std::string> PlanWarnings(const Graph& graph, const OperatorGraph& operators,
                                      const Cluster& cluster, const Strategy& strategy) {
  std::vector<std::string> warnings = StrategyWarnings(graph, cluster, strategy);
  const int32_t converted =
      strategy.stages.size() > 1 ? Decompose(operators.dag()).converted_blocks : 0;
  if (converted > 0) {
    warnings.push_back(absl::StrCat(
        converted, converted == 1 ? " part of the graph is" : " parts of the graph are",
        " not series-parallel: planned with order added "
        "between branches, so a better plan may exist"));
  }
  return warnings;
}

}  // namespace stagewright
