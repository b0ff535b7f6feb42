#include "planner_service/planners/pipedream/build.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/strategy/in_flight.h"
#include "common/strategy/stage_edges.h"
#include "planner_service/models/stage_maker.h"
#include "planner_service/search/placement.h"

namespace stagewright::pipedream {
namespace {

struct Placed {
  const PlannedStage* stage;
  std::vector<DeviceId> devices;
};

std::vector<Placed> Place(const Cluster& cluster, const std::vector<PlannedStage>& stages) {
  std::vector<Placed> placed;
  if (stages.front().inner.empty()) {
    std::vector<int32_t> replicas;
    for (const PlannedStage& stage : stages) replicas.push_back(stage.replicas);
    auto devices = PlaceStages(cluster, replicas);
    for (size_t s = 0; s < stages.size(); ++s) {
      placed.push_back({&stages[s], std::move(devices[s])});
    }
    return placed;
  }
  std::map<int32_t, std::vector<DeviceId>> by_node;
  for (int32_t d = 0; d < cluster.size(); ++d) {
    by_node[cluster.devices()[d].node].push_back(DeviceId(d));
  }
  auto node = by_node.begin();
  for (const PlannedStage& outer : stages) {
    const auto end = std::next(node, outer.replicas);
    int32_t offset = 0;
    for (const PlannedStage& inner : outer.inner) {
      Placed& own = placed.emplace_back(Placed{&inner, {}});
      for (auto n = node; n != end; ++n) {
        const auto first = n->second.begin() + offset;
        own.devices.insert(own.devices.end(), first, first + inner.replicas);
      }
      offset += inner.replicas;
    }
    node = end;
  }
  return placed;
}

}  // namespace

std::vector<int64_t> AsynchronousInFlight(const std::vector<int32_t>& replicas) {
  int32_t left = std::accumulate(replicas.begin(), replicas.end(), 0);
  std::vector<int64_t> micro_batches_in_flight;
  for (size_t s = 0; s < replicas.size(); ++s) {
    const auto depth = static_cast<int64_t>(replicas.size() - s);
    const int64_t own = std::max(depth, Noam(left, replicas[s]));
    micro_batches_in_flight.push_back(s == 0 ? own : std::min(own, micro_batches_in_flight.back()));
    left -= replicas[s];
  }
  return micro_batches_in_flight;
}

Strategy BuildStrategy(const StageOracle& oracle, const std::vector<PlannedStage>& stages,
                       int64_t micro_batch, bool asynchronous) {
  const Problem& problem = oracle.problem();
  const StageMaker maker(problem);
  Strategy strategy = EmptyStrategy(problem, StrategyKind::kSequential);
  strategy.asynchronous = asynchronous;
  std::vector<int32_t> replicas;
  for (Placed& placed : Place(*problem.cluster, stages)) {
    std::vector<OperatorId> operators;
    for (int32_t layer : placed.stage->layers) operators.push_back(oracle.order()[layer]);
    Stage stage = maker.Make(operators);
    stage.micro_batch = micro_batch;
    replicas.push_back(static_cast<int32_t>(placed.devices.size()));
    stage.devices = std::move(placed.devices);
    strategy.stages.push_back(std::move(stage));
  }
  strategy.edges = StageEdges(*problem.graph, strategy.kind, strategy.stages);
  AssignInFlight(strategy);
  if (!asynchronous) return strategy;
  const std::vector<int64_t> micro_batches_in_flight = AsynchronousInFlight(replicas);
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    strategy.stages[s].schedule.in_flight =
        std::min(micro_batches_in_flight[s] * micro_batch, problem.mini_batch);
  }
  return strategy;
}

std::string ToString(const std::vector<PlannedStage>& stages) {
  std::string text;
  for (const PlannedStage& stage : stages) {
    absl::StrAppend(&text, text.empty() ? "" : " ", "[", stage.layers.front());
    // Stages may interleave layers of several branches: all of them tell plans apart.
    for (size_t l = 1; l < stage.layers.size(); ++l) {
      const bool run = stage.layers[l] == stage.layers[l - 1] + 1;
      const bool ends = l + 1 == stage.layers.size() || stage.layers[l + 1] != stage.layers[l] + 1;
      if (!run) absl::StrAppend(&text, ",", stage.layers[l]);
      if (run && ends) absl::StrAppend(&text, "-", stage.layers[l]);
    }
    absl::StrAppend(&text, "]x", stage.replicas);
    if (!stage.inner.empty()) absl::StrAppend(&text, "(", ToString(stage.inner), ")");
  }
  return text;
}

}  // namespace stagewright::pipedream
