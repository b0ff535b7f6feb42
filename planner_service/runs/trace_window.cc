#include "planner_service/runs/trace_window.h"

#include <utility>

namespace stagewright {

void TraceWindow::Ask(int64_t first, int32_t steps, absl::Time now) {
  first_ = first;
  end_ = first + steps;
  asked_ = now;
  steps_.clear();
  operators_.clear();
}

bool TraceWindow::Add(int32_t device, int64_t step, std::vector<TraceEvent> events,
                      std::vector<TimedOperator> operators) {
  if (step < first_ || step >= end_) return false;
  Step& told = steps_[step];
  // Who was asked too late tells no actions of its first steps.
  if (events.empty() || !told.devices.insert(device).second) return false;
  told.events.insert(told.events.end(), events.begin(), events.end());
  operators_.insert(operators_.end(), operators.begin(), operators.end());
  return step == end_ - 1 && told.devices.size() == devices_;
}

TraceWindow::Told TraceWindow::Take() {
  Told told;
  for (auto& [step, one] : steps_) {
    if (one.devices.size() < devices_) continue;
    ++told.steps;
    told.last = step;
    told.events.insert(told.events.end(), one.events.begin(), one.events.end());
  }
  told.operators = std::move(operators_);
  Ask(end_, 0, asked_);
  return told;
}

}  // namespace stagewright
