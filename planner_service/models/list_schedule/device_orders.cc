#include "planner_service/models/list_schedule/device_orders.h"

#include <algorithm>

namespace stagewright {
namespace {

// Whether the two halves might as well be one: nobody starts earlier because the input half ends
// first. `started`: when backward passes started.
bool Mergeable(const TaskGraph& graph, const PassTable<Nanos>& started, const TimedPass& input,
               const TimedPass& weight) {
  if (input.unit != weight.unit || input.micro_batch != weight.micro_batch) return false;
  if (input.kind != PassKind::kBackward || input.whole || weight.kind != PassKind::kWeight) {
    return false;
  }
  for (int32_t i = graph.units[input.unit].in_begin; i < graph.in_end(input.unit); ++i) {
    const TaskGraph::Link& link = graph.links[graph.links_in[i]];
    if (!link.gradient) continue;
    const Nanos arrival = weight.end + (link.local ? 0 : link.back_latency + link.back_bytes);
    if (started(link.from, input.micro_batch) < arrival) return false;
  }
  return true;
}

using DevicePasses = std::vector<std::vector<const TimedPass*>>;  // By device.

// By stage.
std::vector<bool> SplitStages(const TaskGraph& graph, std::span<const TimedPass> passes,
                              const DevicePasses& by_device) {
  PassTable<Nanos> started;
  started.Reset(graph.units.size(), graph.micro_batches, 0);
  for (const TimedPass& pass : passes) {
    if (pass.kind == PassKind::kBackward) started(pass.unit, pass.micro_batch) = pass.start;
  }
  std::vector<bool> split(graph.units.empty() ? 0 : graph.units.back().stage + 1, false);
  for (const auto& lane : by_device) {
    for (size_t i = 0; i < lane.size(); ++i) {
      if (lane[i]->kind != PassKind::kBackward || lane[i]->whole) continue;
      const bool mergeable =
          i + 1 < lane.size() && Mergeable(graph, started, *lane[i], *lane[i + 1]);
      if (!mergeable) split[graph.units[lane[i]->unit].stage] = true;
    }
  }
  return split;
}

}  // namespace

Nanos StepEnd(const TaskGraph& graph, std::span<const TimedPass> passes) {
  std::vector<Nanos> stage_end(graph.units.empty() ? 0 : graph.units.back().stage + 1, 0);
  std::vector<Nanos> device_end(graph.devices, 0);
  for (const TimedPass& pass : passes) {
    const TaskGraph::Unit& unit = graph.units[pass.unit];
    stage_end[unit.stage] = std::max(stage_end[unit.stage], pass.end);
    device_end[unit.device] = std::max(device_end[unit.device], pass.end);
  }
  std::vector<Nanos> lane(graph.devices, 0);
  Nanos end = 0;
  for (const TaskGraph::Sum& sum : graph.sums) {
    Nanos summed = stage_end[sum.stage] + sum.exposed;
    for (int32_t d : sum.devices) summed = std::max(summed, lane[d] + sum.time);
    for (int32_t d : sum.devices) lane[d] = summed;
    stage_end[sum.stage] = summed;
    end = std::max(end, summed);
  }
  for (int32_t d = 0; d < graph.devices; ++d) {
    Nanos now = device_end[d];
    for (const TaskGraph::Update& update : graph.device_updates[d]) {
      const Nanos summed = stage_end[update.stage];
      now = std::max(std::max(now, summed - update.last) + update.early, summed) + update.time -
            update.early;
    }
    end = std::max(end, now);
  }
  return end;
}

std::vector<DeviceOrder> OrdersOf(const TaskGraph& graph, std::span<const TimedPass> passes) {
  DevicePasses by_device(graph.devices);
  for (const TimedPass& pass : passes) by_device[graph.units[pass.unit].device].push_back(&pass);
  const std::vector<bool> split = SplitStages(graph, passes, by_device);
  std::vector<DeviceOrder> orders;
  for (int32_t d = 0; d < graph.devices; ++d) {
    if (by_device[d].empty()) continue;
    DeviceOrder& order = orders.emplace_back();
    order.device = DeviceId(d);
    for (const TimedPass* timed : by_device[d]) {
      const TaskGraph::Unit& unit = graph.units[timed->unit];
      const auto add = [&](Pass pass) {
        order.steps.push_back({StageId(unit.stage), pass, timed->micro_batch});
      };
      if (timed->kind == PassKind::kForward) {
        add(Pass::kForward);
      } else if (timed->kind == PassKind::kBackward) {
        if (unit.recompute) add(Pass::kRecompute);
        add(split[unit.stage] ? Pass::kBackwardInput : Pass::kBackward);
      } else if (split[unit.stage]) {
        add(Pass::kBackwardWeight);
      }
    }
  }
  return orders;
}

}  // namespace stagewright
