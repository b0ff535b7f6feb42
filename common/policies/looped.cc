#include "common/policies/looped.h"

// Looped schedules: what a device runs follows from counters alone, so the orders are written down
// directly and only then checked against the dependencies of the graph.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/policies/execution.h"

namespace stagewright {
namespace {

struct Unit {
  StageId stage;
  int64_t index = 0;  // The micro-batch's.
};

// Groups of `batch` micro-batches, each through all of the stages before the next group.
std::vector<Unit> InGroups(const std::vector<StageId>& stages, int64_t micro_batches,
                           int64_t batch) {
  std::vector<Unit> units;
  units.reserve(stages.size() * static_cast<size_t>(micro_batches));
  for (int64_t begin = 0; begin < micro_batches; begin += batch) {
    const int64_t end = std::min(begin + batch, micro_batches);
    for (StageId stage : stages) {
      for (int64_t m = begin; m < end; ++m) units.push_back({stage, m});
    }
  }
  return units;
}

// One device: `warm_up` forwards, then backwards and forwards in turn. A backward whose own forward
// has not run (the device has stages without a backward pass) waits for it.
std::vector<ComputeStep> Alternate(const Pipeline& pipeline, const std::vector<Unit>& forwards,
                                   const std::vector<Unit>& backwards, int64_t warm_up) {
  std::vector<ComputeStep> steps;
  std::vector<int64_t> forwarded(pipeline.stages.size(), 0);
  size_t next = 0;
  const auto forward = [&] {
    const Unit& unit = forwards[next++];
    steps.push_back({unit.stage, Pass::kForward, unit.index});
    ++forwarded[unit.stage.index()];
  };
  while (next < forwards.size() && static_cast<int64_t>(next) < warm_up) forward();
  for (const Unit& unit : backwards) {
    while (forwarded[unit.stage.index()] <= unit.index) forward();
    if (pipeline.stages[unit.stage.index()].recompute)
      steps.push_back({unit.stage, Pass::kRecompute, unit.index});
    steps.push_back({unit.stage, Pass::kBackward, unit.index});
    if (next < forwards.size()) forward();
  }
  while (next < forwards.size()) forward();
  return steps;
}

}  // namespace

absl::StatusOr<std::vector<DeviceOrder>> LoopedOrders(const Graph& graph, const Strategy& strategy,
                                                      const LoopedSchedule& schedule) {
  ASSIGN_OR_RETURN(const Pipeline pipeline, MakePipeline(graph, strategy));
  if (schedule.loop_batch < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("loop_batch is ", schedule.loop_batch, ", not positive"));
  }
  if (!schedule.prefetch.empty() && schedule.prefetch.size() != pipeline.devices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("prefetch has ", schedule.prefetch.size(),
                                                   " entries for ", pipeline.devices.size(),
                                                   " devices"));
  }
  const int64_t batch = std::min(schedule.loop_batch, pipeline.micro_batches);
  std::vector<DeviceOrder> orders;
  for (const auto& [device, stages] : pipeline.devices) {
    std::vector<StageId> trained;  // Last first.
    int64_t depth = pipeline.depth;
    for (auto s = stages.rbegin(); s != stages.rend(); ++s) {
      if (!pipeline.stages[s->index()].has_backward) continue;
      trained.push_back(*s);
      depth = std::min<int64_t>(depth, pipeline.stages[s->index()].depth);
    }
    const int64_t prefetch = schedule.prefetch.empty() ? 0 : schedule.prefetch[orders.size()];
    const int64_t warm_up =
        (static_cast<int64_t>(stages.size()) - 1) * batch + depth + std::max<int64_t>(prefetch, 0);
    orders.push_back(
        {device, Alternate(pipeline, InGroups(stages, pipeline.micro_batches, batch),
                           InGroups(trained, pipeline.micro_batches, batch), warm_up)});
  }
  return MakeRunnable(pipeline, std::move(orders));
}

}  // namespace stagewright
