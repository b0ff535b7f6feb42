#include "common/wire/step_history.h"

#include <algorithm>
#include <iterator>

namespace stagewright {

StepHistory StepHistory::FromProto(const v1::ListJobStepsResponse& proto) {
  StepHistory history;
  history.stride_ = std::max<int64_t>(1, proto.stride());
  for (const v1::JobStep& step : proto.steps()) history.Add(step);
  return history;
}

void StepHistory::Add(const v1::JobStep& step) {
  const int64_t number = step.step();
  if (!steps_.empty()) {
    const int64_t first = steps_.begin()->first;
    const int64_t last = steps_.rbegin()->first;
    // What was at an end and is not any more stays only if the stride has it.
    if (number > last && last != first && !OnStride(last)) steps_.erase(last);
    if (number < first && first != last && !OnStride(first)) steps_.erase(first);
    if (number > first && number < last && !OnStride(number)) return;
  }
  steps_[number] = step;
  while (steps_.size() > bound_) Thin();
}

void StepHistory::Thin() {
  stride_ *= 2;
  if (steps_.empty()) return;
  const int64_t first = steps_.begin()->first;
  const int64_t last = steps_.rbegin()->first;
  std::erase_if(steps_, [&](const auto& entry) {
    return entry.first != first && entry.first != last && !OnStride(entry.first);
  });
}

void StepHistory::Coarsen(int64_t stride) {
  while (stride_ < stride) Thin();
}

void StepHistory::DropAfter(int64_t step) { steps_.erase(steps_.upper_bound(step), steps_.end()); }

v1::ListJobStepsResponse StepHistory::ToProto(int64_t after_step) const {
  v1::ListJobStepsResponse proto;
  proto.set_stride(stride_);
  for (auto it = steps_.upper_bound(after_step); it != steps_.end(); ++it)
    *proto.add_steps() = it->second;
  return proto;
}

}  // namespace stagewright
