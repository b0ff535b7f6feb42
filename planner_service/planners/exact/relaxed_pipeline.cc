#include "planner_service/planners/exact/relaxed_pipeline.h"

#include <algorithm>
#include <utility>

#include "common/lowering/compute_order.h"
#include "planner_service/models/timeline.h"

namespace stagewright {
namespace {

// First units of the stages; a unit is a replica, on a device of its own.
std::vector<int32_t> FirstUnits(const StageTimes& times) {
  std::vector<int32_t> first = {0};
  for (const auto& replicas : times.replicas) {
    first.push_back(first.back() + static_cast<int32_t>(replicas.size()));
  }
  return first;
}

PassLanes LanesOf(const StageTimes& times, const PipelineCase& pipeline) {
  std::vector<PassLanes::Unit> units;
  std::vector<UnitPass> passes;
  for (int32_t s = 0; s < times.stages(); ++s) {
    const PipelineCase::StageCase& stage = pipeline.stages[s];
    const std::vector<MicroBatchTask> order = StageOrder(
        times.micro_batches, 1, {stage.micro_batches_in_flight, static_cast<int32_t>(pipeline.k)},
        stage.has_backward);
    for (size_t r = 0; r < times.replicas[s].size(); ++r) {
      const auto unit = static_cast<int32_t>(units.size());
      units.push_back({unit, static_cast<int32_t>(times.micro_batches)});
      for (const MicroBatchTask& task : order) {
        const auto m = static_cast<int32_t>(task.index);
        if (task.backward && stage.recompute) passes.push_back({unit, m, PassKind::kRecompute});
        passes.push_back({unit, m, task.backward ? PassKind::kBackward : PassKind::kForward});
      }
    }
  }
  return PassLanes(std::move(units), passes, std::nullopt);
}

// The simulator rounds to whole nanoseconds.
TimelineCosts::Way WayOf(const Route& route, Bytes bytes) {
  return {0, std::max(0.0, static_cast<double>(route.latency) - 1 +
                               static_cast<double>(bytes) * 1e9 / route.bytes_per_second)};
}

TimelineCosts CostsOf(const Cluster& cluster, const StageTimes& times,
                      const PipelineCase& pipeline) {
  TimelineCosts costs;
  for (int32_t s = 0; s < times.stages(); ++s) {
    const PipelineCase::StageCase& stage = pipeline.stages[s];
    for (size_t r = 0; r < times.replicas[s].size(); ++r) {
      costs.times.push_back({stage.forward[r], stage.backward[r], stage.forward[r], 0});
      costs.updates.push_back(stage.update);
    }
  }
  const std::vector<int32_t> first = FirstUnits(times);
  for (const CostTable::Exchange& link : pipeline.links) {
    for (size_t a = 0; a < times.replicas[link.from].size(); ++a) {
      for (size_t b = 0; b < times.replicas[link.to].size(); ++b) {
        const StageTimes::Replica& from = times.replicas[link.from][a];
        const StageTimes::Replica& to = times.replicas[link.to][b];
        const int64_t samples = std::min(from.first + from.samples, to.first + to.samples) -
                                std::max(from.first, to.first);
        if (samples <= 0) continue;
        costs.messages.push_back(
            {first[link.from] + static_cast<int32_t>(a), first[link.to] + static_cast<int32_t>(b),
             link.gradient, WayOf(cluster.route(from.device, to.device), samples * link.there),
             WayOf(cluster.route(to.device, from.device), samples * link.back)});
      }
    }
  }
  return costs;
}

}  // namespace

double LeastPipelineTime(const Cluster& cluster, const StageTimes& times,
                         const PipelineCase& pipeline, double most) {
  return Timeline(LanesOf(times, pipeline))
      .Run(CostsOf(cluster, times, pipeline), {.links = LinkModel::kInTurn, .limit = most});
}

}  // namespace stagewright
