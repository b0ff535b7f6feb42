#include "worker_daemon/effects/compute_times.h"

#include <algorithm>
#include <map>
#include <utility>

namespace stagewright {

void ComputeTimes::Begin() {
  if (clock_ != nullptr) marks_.push_back({clock_->Record(), {}});
}

void ComputeTimes::End() {
  if (clock_ != nullptr) marks_.back().back() = clock_->Record();
}

absl::Status ComputeTimes::Correct(StepTrace& trace) {
  if (clock_ == nullptr) return absl::OkStatus();
  std::vector<TraceEvent>& events = trace.events;
  std::map<RunAction, Nanos> starts, ends;
  const auto marks = std::exchange(marks_, {});
  auto mark = marks.begin();
  for (size_t i = 0; i < events.size(); ++i) {
    if (!IsCompute(events[i].action.kind)) continue;
    ASSIGN_OR_RETURN(events[i].start, clock_->TimeOf(mark->front()));
    ASSIGN_OR_RETURN(events[i].end, clock_->TimeOf(mark->back()));
    starts[trace.actions[i].place] = events[i].start;
    ends[trace.actions[i].place] = events[i].end;
    ++mark;
  }
  for (size_t i = 0; i < events.size(); ++i) {
    if (IsCompute(events[i].action.kind)) continue;
    const StepAction& action = trace.actions[i];
    for (int32_t before : action.entry->after) {
      const auto end = ends.find({action.place.section, before});
      if (end != ends.end()) events[i].start = std::max(events[i].start, end->second);
    }
    for (const PassMark& reached : action.entry->after_marks) {
      const auto start = starts.find({action.place.section, reached.action});
      if (start != starts.end()) events[i].start = std::max(events[i].start, start->second);
    }
    events[i].end = std::max(events[i].end, events[i].start);
  }
  return clock_->Align();
}

}  // namespace stagewright
