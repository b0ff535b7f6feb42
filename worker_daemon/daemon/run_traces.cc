#include "worker_daemon/daemon/run_traces.h"

#include <algorithm>

#include "common/wire/strategy_proto.h"

namespace stagewright {
namespace {

Nanos Mean(Nanos sum, int64_t count) { return count == 0 ? Nanos(0) : sum / count; }

}  // namespace

void RunTraces::Ask(const v1::TraceSteps& message) {
  absl::MutexLock lock(&mutex_);
  first_ = message.first_step();
  end_ = first_ + std::clamp(message.steps(), 0, kMostSteps);
  operators_ = message.operators();
  sums_.clear();
}

bool RunTraces::TimesOperators(int64_t step) {
  absl::MutexLock lock(&mutex_);
  return operators_ && IsAsked(step) && step >= end_ - kTimedSteps;
}

void RunTraces::Add(const StepReport& report, int64_t first_step, DeviceId device,
                    v1::Progress& progress) {
  const auto& named = prepare_.traced_steps();
  const bool is_named =
      std::find(named.begin(), named.end(), report.step - first_step) != named.end();
  absl::MutexLock lock(&mutex_);
  if (is_named || IsAsked(report.step)) {
    for (const TraceEvent& event : report.events) *progress.add_trace() = ToProto(event);
  }
  if (!operators_ || !IsAsked(report.step)) return;
  for (const OperatorTimes& times : report.operators) {
    OperatorTimes& sum = sums_[{device, times.stage, times.node, times.samples}];
    sum.forwards += times.forwards;
    sum.backwards += times.backwards;
    sum.forward += times.forward;
    sum.backward += times.backward;
  }
  if (report.step + 1 < end_) return;
  for (auto it = sums_.lower_bound({device, StageId(0), NodeId(0), 0});
       it != sums_.end() && std::get<DeviceId>(it->first) == device; it = sums_.erase(it)) {
    v1::OperatorTime* out = progress.mutable_devices(0)->add_operators();
    out->set_device(device.value());
    out->set_stage(std::get<StageId>(it->first).value());
    out->set_node(std::get<NodeId>(it->first).value());
    out->set_samples(std::get<int64_t>(it->first));
    out->set_forward_ns(Mean(it->second.forward, it->second.forwards).count());
    out->set_backward_ns(Mean(it->second.backward, it->second.backwards).count());
  }
}

}  // namespace stagewright
