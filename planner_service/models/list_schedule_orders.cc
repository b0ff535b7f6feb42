// What follows from the passes of a list schedule: the end of the step with all-reduces and
// updates, and the compute orders of a strategy.
#include <algorithm>

#include "planner_service/models/list_schedule.h"

namespace stagewright {

Nanos ListScheduler::Finish() {
  std::vector<Nanos> last(graph_->units.size(), 0);
  for (const Done& done : done_) last[done.unit] = std::max(last[done.unit], done.end);
  std::vector<Nanos> stage_end;
  for (size_t u = 0; u < last.size(); ++u) {
    const auto stage = static_cast<size_t>(graph_->units[u].stage);
    if (stage_end.size() <= stage) stage_end.resize(stage + 1, 0);
    stage_end[stage] = std::max(stage_end[stage], last[u]);
  }
  std::vector<Nanos> lane(graph_->devices, 0);
  Nanos end = 0;
  for (const TaskGraph::Sum& sum : graph_->sums) {
    Nanos start = stage_end[sum.stage];
    for (int32_t d : sum.devices) start = std::max(start, lane[d]);
    for (int32_t d : sum.devices) lane[d] = start + sum.time;
    stage_end[sum.stage] = start + sum.time;
    end = std::max(end, start + sum.time);
  }
  for (int32_t d = 0; d < graph_->devices; ++d) {
    Nanos now = free_[d];
    for (const TaskGraph::Update& update : graph_->device_updates[d]) {
      now = std::max(now, stage_end[update.stage]) + update.time;
    }
    end = std::max(end, now);
  }
  return end;
}

// Whether the two halves might as well be one: nobody starts earlier because the input half ends
// first.
bool ListScheduler::Mergeable(const Done& input, const Done& weight) const {
  if (input.unit != weight.unit || input.micro_batch != weight.micro_batch) return false;
  if (input.phase != kBackward || input.whole || weight.phase != kWeight) return false;
  for (int32_t i = graph_->units[input.unit].in_begin; i < graph_->in_end(input.unit); ++i) {
    const TaskGraph::Link& link = graph_->links[graph_->links_in[i]];
    if (!link.gradient) continue;
    const Nanos arrival = weight.end + (link.local ? 0 : link.back_latency + link.back_bytes);
    const size_t at = static_cast<size_t>(link.from) * micro_batches_ + input.micro_batch;
    if (started_backward_[at] < arrival) return false;
  }
  return true;
}

std::vector<DeviceOrder> ListScheduler::Orders() const {
  std::vector<std::vector<const Done*>> by_device(graph_->devices);
  for (const Done& done : done_) by_device[graph_->units[done.unit].device].push_back(&done);
  // A stage's backward passes are all whole or all split: whole if that delays nobody.
  std::vector<bool> split(graph_->units.empty() ? 0 : graph_->units.back().stage + 1, false);
  for (const auto& passes : by_device) {
    for (size_t i = 0; i < passes.size(); ++i) {
      if (passes[i]->phase != kBackward || passes[i]->whole) continue;
      const bool mergeable = i + 1 < passes.size() && Mergeable(*passes[i], *passes[i + 1]);
      if (!mergeable) split[graph_->units[passes[i]->unit].stage] = true;
    }
  }
  std::vector<DeviceOrder> orders;
  for (int32_t d = 0; d < graph_->devices; ++d) {
    if (by_device[d].empty()) continue;
    DeviceOrder& order = orders.emplace_back();
    order.device = DeviceId(d);
    for (const Done* done : by_device[d]) {
      const TaskGraph::Unit& unit = graph_->units[done->unit];
      const auto add = [&](Pass pass) {
        order.steps.push_back({StageId(unit.stage), pass, done->micro_batch});
      };
      if (done->phase == kForward) {
        add(Pass::kForward);
      } else if (done->phase == kBackward) {
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
