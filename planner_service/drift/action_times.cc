#include "planner_service/drift/action_times.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

// A transfer or gradient sum of a step: all events of it meet here.
struct Meeting {
  int32_t step = 0;
  ActionGroup group;
  SampleRange samples;
  friend auto operator<=>(const Meeting&, const Meeting&) = default;
};

// The group of an action as its events name it, of either end of a transfer.
ActionGroup GroupOf(const Program& program, DeviceId device, const Action& action) {
  ActionGroup group{action.kind, action.stage, device, action.samples.size(), action.channel};
  if (action.kind == ActionKind::kAllReduce) {
    group.device = DeviceId();
    group.stage = program.reductions[action.channel].stages.empty()
                      ? StageId(0)
                      : program.reductions[action.channel].stages.front();
  } else if (IsTransfer(action.kind)) {
    const Channel& channel = program.channels[action.channel];
    const bool forward =
        action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kReceiveActivation;
    group.kind = forward ? ActionKind::kSendActivation : ActionKind::kSendGradient;
    group.stage = forward ? channel.from : channel.to;
    group.device = forward ? channel.source : channel.target;
  }
  return group;
}

Nanos TimeOf(const std::vector<const TraceEvent*>& events, const SameClock& same_clock) {
  bool one_clock = true;
  Nanos start = events.front()->start, end = events.front()->end;
  Nanos shortest = end - start;
  for (const TraceEvent* event : events) {
    one_clock &= same_clock(events.front()->device, event->device);
    start = std::max(start, event->start);
    end = std::max(end, event->end);
    shortest = std::min(shortest, event->end - event->start);
  }
  // A sender may be done before the receiver has begun to wait.
  const TraceEvent* receive = nullptr;
  for (const TraceEvent* event : events) {
    if (IsReceive(event->action.kind)) receive = event;
  }
  if (one_clock && receive != nullptr) end = receive->end;
  return std::max<Nanos>(0, one_clock ? end - start : shortest);
}

Bytes BytesOf(const Program& program, const ActionGroup& group) {
  if (group.channel < 0) return 0;
  switch (group.kind) {
    case ActionKind::kAllReduce:
      return program.reductions[group.channel].bytes;
    case ActionKind::kSendActivation:
      return program.channels[group.channel].activation_bytes_per_sample * group.samples;
    case ActionKind::kSendGradient:
      return program.channels[group.channel].gradient_bytes_per_sample * group.samples;
    default:
      return 0;
  }
}

// How many actions of each group a step has; a gradient sum is one for all its members.
std::map<ActionGroup, int64_t> CountsOf(const Program& program) {
  std::map<ActionGroup, int64_t> counts;
  for (const DeviceProgram& device : program.devices) {
    for (const ProgramAction& item : device.body) {
      if (IsReceive(item.action.kind)) continue;
      int64_t& count = counts[GroupOf(program, device.device, item.action)];
      count = item.action.kind == ActionKind::kAllReduce ? 1 : count + 1;
    }
  }
  return counts;
}

}  // namespace

std::map<ActionGroup, Nanos> TypicalTimes(const Program& program,
                                          const std::vector<TraceEvent>& trace,
                                          const SameClock& same_clock) {
  std::map<ActionGroup, std::vector<Nanos>> times;
  std::map<Meeting, std::vector<const TraceEvent*>> meetings;
  for (const TraceEvent& event : trace) {
    const ActionGroup group = GroupOf(program, event.device, event.action);
    if (IsCompute(event.action.kind)) {
      times[group].push_back(event.end - event.start);
    } else {
      meetings[{event.step, group, event.action.samples}].push_back(&event);
    }
  }
  for (const auto& [meeting, events] : meetings) {
    const bool sum = meeting.group.kind == ActionKind::kAllReduce;
    const size_t ends = sum ? program.reductions[meeting.group.channel].devices.size() : 2;
    if (events.size() == ends) times[meeting.group].push_back(TimeOf(events, same_clock));
  }
  std::map<ActionGroup, Nanos> typical;
  for (auto& [group, all] : times) {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    typical[group] = *middle;
  }
  return typical;
}

std::vector<ActionTimes> CompareTimes(const Program& program,
                                      const std::vector<TraceEvent>& predicted,
                                      const std::vector<TraceEvent>& measured,
                                      const SameClock& same_clock) {
  const auto counts = CountsOf(program);
  const auto before =
      TypicalTimes(program, predicted, [](DeviceId /*a*/, DeviceId /*b*/) { return true; });
  std::vector<ActionTimes> all;
  for (const auto& [group, time] : TypicalTimes(program, measured, same_clock)) {
    const auto known = before.find(group);
    const auto count = counts.find(group);
    if (known == before.end() || count == counts.end()) continue;
    all.push_back({group, count->second, BytesOf(program, group), known->second, time});
  }
  std::stable_sort(all.begin(), all.end(), [](const ActionTimes& a, const ActionTimes& b) {
    const auto size = [](Nanos excess) { return std::max(excess, -excess); };
    return size(a.Excess()) > size(b.Excess());
  });
  return all;
}

}  // namespace stagewright
