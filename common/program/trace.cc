#include "common/program/trace.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/program/unroll.h"

namespace stagewright {
namespace {

// The events of one step on one device, by index of the body.
using StepEvents = std::vector<const TraceEvent*>;

std::string Where(DeviceId device, int32_t step) {
  return absl::StrCat("device ", device.value(), ", step ", step, ": ");
}

template <typename... Args>
absl::Status Broken(DeviceId device, int32_t step, const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat(Where(device, step), args...));
}

std::string Span(const TraceEvent& event) {
  return absl::StrCat(ToString(event.action), " (", event.start, " to ", event.end, " ns)");
}

std::map<LaneKey, std::vector<int32_t>> Lanes(const std::vector<ProgramAction>& body) {
  std::map<LaneKey, std::vector<int32_t>> lanes;
  for (size_t i = 0; i < body.size(); ++i)
    lanes[LaneOf(body[i].action)].push_back(static_cast<int32_t>(i));
  return lanes;
}

// Matches the events of one lane with its actions in order, without overlap.
absl::Status MatchLane(const DeviceProgram& device, int32_t step, const std::vector<int32_t>& lane,
                       const std::vector<const TraceEvent*>& events, StepEvents& matched) {
  const TraceEvent* before = nullptr;
  for (size_t i = 0; i < std::max(lane.size(), events.size()); ++i) {
    if (i >= events.size()) {
      return Broken(device.device, step, ToString(device.body[lane[i]].action), " is missing");
    }
    const TraceEvent& event = *events[i];
    if (i >= lane.size()) {
      return Broken(device.device, step, ToString(event.action),
                    " is not in the program or there too often");
    }
    const Action& expected = device.body[lane[i]].action;
    if (event.action != expected) {
      return Broken(device.device, step, ToString(event.action), " ran where ", ToString(expected),
                    " was due");
    }
    if (event.end < event.start) {
      return Broken(device.device, step, Span(event), " ends before it starts");
    }
    if (before != nullptr && event.start < before->end) {
      return Broken(device.device, step, Span(event), " overlaps ", Span(*before),
                    " of the same lane");
    }
    before = &event;
    matched[lane[i]] = &event;
  }
  return absl::OkStatus();
}

absl::Status MatchDevice(const DeviceProgram& device, int32_t step,
                         std::vector<const TraceEvent*> events, StepEvents& matched) {
  // Events without duration may share their start; the program's order then decides.
  std::map<Action, int32_t> index;
  for (size_t i = 0; i < device.body.size(); ++i)
    index.try_emplace(device.body[i].action, static_cast<int32_t>(i));
  const auto key = [&](const TraceEvent* event) {
    const auto found = index.find(event->action);
    return std::tuple(event->start, event->end, found == index.end() ? -1 : found->second);
  };
  std::stable_sort(events.begin(), events.end(),
                   [&](const TraceEvent* a, const TraceEvent* b) { return key(a) < key(b); });
  std::map<LaneKey, std::vector<const TraceEvent*>> by_lane;
  for (const TraceEvent* event : events) by_lane[LaneOf(event->action)].push_back(event);
  const auto lanes = Lanes(device.body);
  matched.assign(device.body.size(), nullptr);
  for (const auto& [lane, indices] : lanes)
    RETURN_IF_ERROR(MatchLane(device, step, indices, by_lane[lane], matched));
  for (const auto& [lane, found] : by_lane) {
    if (!lanes.contains(lane)) {
      return Broken(device.device, step, ToString(found.front()->action), " is not in the program");
    }
  }
  for (size_t i = 0; i < device.body.size(); ++i) {
    for (int32_t before : device.body[i].after) {
      if (before < 0 || before >= static_cast<int32_t>(matched.size()) ||
          matched[i]->start < matched[before]->end) {
        return Broken(device.device, step, Span(*matched[i]), " did not wait for ",
                      before < 0 || before >= static_cast<int32_t>(matched.size())
                          ? absl::StrCat("action ", before)
                          : Span(*matched[before]));
      }
    }
    for (const PassMark& mark : device.body[i].after_marks) {
      const bool exists = mark.action >= 0 && mark.action < static_cast<int32_t>(matched.size());
      if (exists && matched[i]->start >= matched[mark.action]->start) continue;
      return Broken(device.device, step, Span(*matched[i]), " started before ",
                    exists ? Span(*matched[mark.action]) : absl::StrCat("action ", mark.action));
    }
  }
  return absl::OkStatus();
}

// What devices wait for of each other: a receive ends after its send starts, an all-reduce after
// its last member starts.
absl::Status CheckMeetings(const Program& program, int32_t step,
                           const std::vector<StepEvents>& matched) {
  std::map<LaneKey, std::vector<const TraceEvent*>> sends;
  // By reduction and how many of it came before.
  std::map<std::pair<int32_t, size_t>, const TraceEvent*> last_start;
  for (const StepEvents& events : matched) {
    std::map<int32_t, size_t> sums;
    for (const TraceEvent* event : events) {
      if (IsSend(event->action.kind)) sends[LaneOf(event->action)].push_back(event);
      if (!IsCollective(event->action.kind)) continue;
      const int32_t reduction = event->action.channel;
      const TraceEvent*& last = last_start[{reduction, sums[reduction]++}];
      if (last == nullptr || last->start < event->start) last = event;
    }
  }
  for (size_t d = 0; d < matched.size(); ++d) {
    std::map<LaneKey, size_t> received;
    std::map<int32_t, size_t> sums;
    for (const TraceEvent* event : matched[d]) {
      if (IsCollective(event->action.kind)) {
        const int32_t reduction = event->action.channel;
        const TraceEvent& last = *last_start[{reduction, sums[reduction]++}];
        if (event->end < last.start) {
          return Broken(event->device, step, Span(*event), " ended before ", Span(last),
                        " started on device ", last.device.value());
        }
      }
      if (!IsReceive(event->action.kind)) continue;
      LaneKey lane = LaneOf(event->action);
      const size_t place = received[lane]++;
      lane.kind = static_cast<int32_t>(event->action.kind == ActionKind::kReceiveActivation
                                           ? ActionKind::kSendActivation
                                           : ActionKind::kSendGradient);
      const auto& of_lane = sends[lane];
      if (place >= of_lane.size()) return Broken(event->device, step, Span(*event), " has no send");
      if (event->end < of_lane[place]->start) {
        return Broken(event->device, step, Span(*event), " ended before ", Span(*of_lane[place]),
                      " started on device ", of_lane[place]->device.value());
      }
    }
  }
  return absl::OkStatus();
}

// Checks an asynchronous program: the run written out, events with samples counted through.
absl::Status CheckRun(const Program& program, std::vector<TraceEvent> events) {
  if (events.empty()) return absl::OkStatus();
  const auto by_step = [](const TraceEvent& a, const TraceEvent& b) { return a.step < b.step; };
  const auto [first, last] = std::minmax_element(events.begin(), events.end(), by_step);
  const int32_t start = first->step;
  const int64_t steps = int64_t{last->step} - start + 1;
  for (TraceEvent& event : events) {
    SampleRange& samples = event.action.samples;
    const int64_t before = (event.step - start) * program.mini_batch;
    if (!samples.empty()) samples = {samples.begin + before, samples.end + before};
    event.step = start;
  }
  return CheckTrace(Unroll(program, steps), events);
}

// Compute actions share a thread and a category.
std::string KindName(ActionKind kind) {
  return IsCompute(kind) ? "compute" : std::string(ActionKindName(kind));
}

// Threads of a process: all compute actions share one.
int ThreadOf(ActionKind kind) { return IsCompute(kind) ? 0 : static_cast<int>(kind); }

}  // namespace

absl::Status CheckTrace(const Program& program, const std::vector<TraceEvent>& trace) {
  if (HasSections(program)) return CheckRun(program, trace);
  std::map<DeviceId, size_t> rows;
  for (size_t d = 0; d < program.devices.size(); ++d) rows[program.devices[d].device] = d;
  std::map<int32_t, std::vector<std::vector<const TraceEvent*>>> steps;
  for (const TraceEvent& event : trace) {
    const auto row = rows.find(event.device);
    if (row == rows.end()) {
      return Broken(event.device, event.step, ToString(event.action),
                    ": the device is not in the program");
    }
    auto& devices = steps[event.step];
    devices.resize(program.devices.size());
    devices[row->second].push_back(&event);
  }
  for (const auto& [step, devices] : steps) {
    std::vector<StepEvents> matched(devices.size());
    for (size_t d = 0; d < devices.size(); ++d)
      RETURN_IF_ERROR(MatchDevice(program.devices[d], step, devices[d], matched[d]));
    RETURN_IF_ERROR(CheckMeetings(program, step, matched));
  }
  return absl::OkStatus();
}

std::string ChromeTrace(
    const std::vector<std::pair<std::string, std::vector<TraceEvent>>>& labelled_traces,
    const std::vector<std::string>& device_names) {
  nlohmann::json events = nlohmann::json::array();
  const auto stride = static_cast<int64_t>(device_names.size()) + 1;
  int64_t first_process = 0;
  for (const auto& [label, trace] : labelled_traces) {
    std::set<std::pair<int64_t, int>> named;  // Processes (thread -1) and threads.
    for (const TraceEvent& event : trace) {
      const size_t device = std::min(event.device.index(), device_names.size());
      const int64_t process = first_process + static_cast<int64_t>(device);
      const int thread = ThreadOf(event.action.kind);
      if (named.insert({process, -1}).second) {
        const std::string name = device < device_names.size()
                                     ? device_names[device]
                                     : absl::StrCat("device ", event.device.value());
        events.push_back({{"ph", "M"},
                          {"name", "process_name"},
                          {"pid", process},
                          {"args", {{"name", absl::StrCat(label, ": ", name)}}}});
      }
      if (named.insert({process, thread}).second) {
        events.push_back({{"ph", "M"},
                          {"name", "thread_name"},
                          {"pid", process},
                          {"tid", thread},
                          {"args", {{"name", KindName(event.action.kind)}}}});
      }
      events.push_back({{"ph", "X"},
                        {"name", ToString(event.action)},
                        {"cat", KindName(event.action.kind)},
                        {"pid", process},
                        {"tid", thread},
                        {"ts", static_cast<double>(event.start) * 1e-3},
                        {"dur", static_cast<double>(event.end - event.start) * 1e-3},
                        {"args", {{"step", event.step}}}});
    }
    first_process += stride;
  }
  return nlohmann::json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace stagewright
