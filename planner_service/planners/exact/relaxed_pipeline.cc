#include "planner_service/planners/exact/relaxed_pipeline.h"

#include <algorithm>

namespace stagewright {

void RelaxedPipeline::Prepare(const StageTimes& times, const PipelineCase& pipeline) {
  micro_batches_ = times.micro_batches;
  size_t count = 0;
  std::vector<int32_t> first;
  for (int32_t s = 0; s < times.stages(); ++s) {
    first.push_back(static_cast<int32_t>(count));
    for (size_t r = 0; r < times.replicas[s].size(); ++r) {
      if (units_.size() <= count) units_.emplace_back();
      Unit& unit = units_[count++];
      const PipelineCase::StageCase& stage = pipeline.stages[s];
      unit.stage = s;
      unit.forward = stage.forward[r];
      unit.backward = stage.backward[r];
      unit.now = 0;
      unit.forwards = unit.backwards = unit.in_round = 0;
      unit.turning_back = false;
      unit.in.clear();
      unit.out.clear();
      unit.forward_end.assign(micro_batches_, -1);
      unit.backward_end.assign(micro_batches_, -1);
    }
  }
  units_.resize(count);
  channels_.clear();
  for (const CostTable::Exchange& link : pipeline.links) {
    for (size_t a = 0; a < times.replicas[link.from].size(); ++a) {
      for (size_t b = 0; b < times.replicas[link.to].size(); ++b) {
        const StageTimes::Replica& from = times.replicas[link.from][a];
        const StageTimes::Replica& to = times.replicas[link.to][b];
        const int64_t samples = std::min(from.first + from.samples, to.first + to.samples) -
                                std::max(from.first, to.first);
        if (samples <= 0) continue;
        const Route& there = cluster_.route(from.device, to.device);
        const Route& back = cluster_.route(to.device, from.device);
        const auto size = static_cast<double>(samples);
        // The simulator rounds to whole nanoseconds.
        Channel channel;
        channel.from = first[link.from] + static_cast<int32_t>(a);
        channel.to = first[link.to] + static_cast<int32_t>(b);
        channel.there = static_cast<double>(there.latency) - 1 +
                        size * static_cast<double>(link.there) * 1e9 / there.bytes_per_second;
        channel.back = static_cast<double>(back.latency) - 1 +
                       size * static_cast<double>(link.back) * 1e9 / back.bytes_per_second;
        channel.there = std::max(channel.there, 0.0);
        channel.back = std::max(channel.back, 0.0);
        channel.gradient = link.gradient;
        units_[channel.from].out.push_back(static_cast<int32_t>(channels_.size()));
        units_[channel.to].in.push_back(static_cast<int32_t>(channels_.size()));
        channels_.push_back(channel);
      }
    }
  }
}

// As StageOrder in common/lowering/compute_order.h: forwards until enough are in flight, then k
// backwards and k forwards in turn, then the remaining backwards.
bool RelaxedPipeline::WantsBackward(const Unit& unit, const PipelineCase& pipeline) const {
  const PipelineCase::StageCase& stage = pipeline.stages[unit.stage];
  if (!stage.has_backward) return false;
  return unit.forwards == micro_batches_ || unit.turning_back;
}

// The unit's next pass, if its inputs are known; false if it has to wait.
bool RelaxedPipeline::Advance(Unit& unit, const PipelineCase& pipeline) {
  const PipelineCase::StageCase& stage = pipeline.stages[unit.stage];
  const bool backward = WantsBackward(unit, pipeline);
  const int64_t i = backward ? unit.backwards : unit.forwards;
  if (i == micro_batches_) return false;
  for (int32_t c : backward ? unit.out : unit.in) {
    const Channel& channel = channels_[c];
    if (backward && !channel.gradient) continue;
    const double sent =
        backward ? units_[channel.to].backward_end[i] : units_[channel.from].forward_end[i];
    if (sent < 0) return false;
  }
  // What is recomputed waits for nothing but the device.
  double start = unit.now + (backward && stage.recompute ? unit.forward : 0);
  for (int32_t c : backward ? unit.out : unit.in) {
    Channel& channel = channels_[c];
    if (backward && !channel.gradient) continue;
    double& last = backward ? channel.last_back : channel.last_there;
    const double sent =
        backward ? units_[channel.to].backward_end[i] : units_[channel.from].forward_end[i];
    last = std::max(last, sent) + (backward ? channel.back : channel.there);
    start = std::max(start, last);
  }
  unit.now = start + (backward ? unit.backward : unit.forward);
  (backward ? unit.backward_end : unit.forward_end)[i] = unit.now;
  ++(backward ? unit.backwards : unit.forwards);
  if (!stage.has_backward) return true;
  if (unit.forwards - unit.backwards >= stage.in_flight && !backward && !unit.turning_back) {
    unit.turning_back = true;
    unit.in_round = 0;
  } else if (backward && unit.turning_back && ++unit.in_round == pipeline.k) {
    unit.turning_back = false;
    unit.in_round = 0;
  }
  return true;
}

double RelaxedPipeline::Run(const StageTimes& times, const PipelineCase& pipeline, double most) {
  Prepare(times, pipeline);
  double end = 0;
  bool moved = true;
  while (moved && end <= most) {
    moved = false;
    for (Unit& unit : units_) {
      while (Advance(unit, pipeline)) moved = true;
      end = std::max(end, unit.now + pipeline.stages[unit.stage].update);
    }
  }
  return end;
}

}  // namespace stagewright
