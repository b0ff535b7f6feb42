#include "planner_service/simulator/simulator.h"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/program/cursor.h"
#include "common/program/grid.h"
#include "common/program/unroll.h"
#include "planner_service/simulator/link_shares.h"

namespace stagewright {
namespace {

// Rounds of the event loop between two questions whether to stop.
constexpr int64_t kRoundsBetweenPolls = 1024;
// Steps of an asynchronous program until its pipeline runs evenly, and steps that are measured.
constexpr int64_t kStartSteps = 3;
constexpr int64_t kSteadySteps = 4;

// One action: the row of its device in Program::devices and its index in the body.
struct Cell {
  int32_t row = -1;
  int32_t index = -1;
  bool valid() const { return row >= 0; }
  friend auto operator<=>(const Cell&, const Cell&) = default;
};

enum class EventKind : uint8_t { kComputed, kMarked, kLatencyOver, kTransferred, kReduced };

struct Event {
  Nanos time;
  Cell cell;  // A transfer's send; an all-reduce's smallest member.
  EventKind kind;
  // kTransferred: void unless it is still the flow's version. kMarked: the mark's node.
  uint32_t version = 0;

  friend bool operator>(const Event& a, const Event& b) {
    return std::tie(a.time, a.cell) > std::tie(b.time, b.cell);
  }
};

// The two ends of the one transfer that a channel can have under way in a direction.
struct Meeting {
  Cell send;
  Cell receive;
};

// What the timeline needs of every action; kept only on request.
struct Record {
  Nanos start = 0;
  Nanos end = 0;
  Cell cause;  // The action whose end, or mark, let it start.
  Cell late;   // The member of its transfer or all-reduce that started last.
};

class EventLoop {
 public:
  EventLoop(const Program& program, const Durations& durations, bool record,
            const std::function<bool()>& stop);
  absl::StatusOr<Simulation> Run();

 private:
  const ProgramAction& At(Cell cell) const { return program_.devices[cell.row].body[cell.index]; }
  int32_t SlotOf(const Action& action) const {
    const bool gradient =
        action.kind == ActionKind::kSendGradient || action.kind == ActionKind::kReceiveGradient;
    return action.channel * 2 + (gradient ? 1 : 0);
  }
  Record& RecordOf(Cell cell) { return records_[cell.row][cell.index]; }

  bool Void(const Event& event) const;
  void DropVoidEvents();
  void StartReady();
  void StartMarks(Cell cell, const Action& action, Nanos time);
  void StartTransferEnd(Cell cell, const Action& action);
  void BeginTransfer(int32_t slot, Cell late);
  void StartCollective(Cell cell, const Action& action);
  void Handle(const Event& event);
  void ReachMarks();
  void FinishEnded();
  absl::Status Deadlock() const;
  Simulation Result();
  void FillTimeline(Simulation& simulation);

  const Program& program_;
  const Durations& durations_;
  const bool record_;
  const std::function<bool()>& stop_;
  LinkShares shares_;
  std::vector<Cursor> cursors_;
  std::vector<Meeting> meetings_;           // By slot: channel and direction.
  std::vector<std::vector<Cell>> members_;  // By reduction: those that started.
  std::vector<std::vector<Record>> records_;
  std::vector<std::vector<bool>> ended_flags_;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  std::vector<std::pair<Cell, Cell>> ready_;      // (action, cause)
  std::map<Cell, std::vector<int32_t>> marks_;    // By backward pass: nodes, each once.
  std::vector<std::pair<Cell, int32_t>> marked_;  // Marks reached now.
  std::vector<Cell> ended_;
  std::vector<Nanos> busy_;
  Nanos now_ = 0;
};

EventLoop::EventLoop(const Program& program, const Durations& durations, bool record,
                     const std::function<bool()>& stop)
    : program_(program),
      durations_(durations),
      record_(record),
      stop_(stop),
      shares_(durations.LinkRates(), static_cast<int32_t>(program.channels.size()) * 2),
      meetings_(program.channels.size() * 2),
      members_(program.reductions.size()),
      busy_(program.devices.size()) {
  cursors_.reserve(program.devices.size());
  for (const DeviceProgram& device : program.devices) {
    cursors_.emplace_back(device.body);
    ended_flags_.emplace_back(device.body.size());
    const auto row = static_cast<int32_t>(cursors_.size()) - 1;
    for (const ProgramAction& item : device.body) {
      for (const PassMark& mark : item.after_marks) {
        std::vector<int32_t>& nodes = marks_[{row, mark.action}];
        if (std::find(nodes.begin(), nodes.end(), mark.node) == nodes.end())
          nodes.push_back(mark.node);
      }
    }
    if (record) records_.emplace_back(device.body.size());
  }
}

absl::StatusOr<Simulation> EventLoop::Run() {
  for (int32_t row = 0; row < static_cast<int32_t>(cursors_.size()); ++row) {
    for (int32_t index : cursors_[row].Ready()) ready_.push_back({{row, index}, {}});
  }
  for (int64_t round = 0;; ++round) {
    if (stop_ && round % kRoundsBetweenPolls == 0 && stop_()) {
      return absl::CancelledError("the simulation was stopped");
    }
    StartReady();
    for (const LinkShares::Change& change : shares_.Settle(now_)) {
      events_.push(
          {change.finish, meetings_[change.flow].send, EventKind::kTransferred, change.version});
    }
    DropVoidEvents();
    if (events_.empty()) break;
    now_ = events_.top().time;
    while (!events_.empty() && events_.top().time == now_) {
      const Event event = events_.top();
      events_.pop();
      if (!Void(event)) Handle(event);
    }
    ReachMarks();
    FinishEnded();
  }
  for (const Cursor& cursor : cursors_) {
    if (!cursor.done()) return Deadlock();
  }
  return Result();
}

bool EventLoop::Void(const Event& event) const {
  return event.kind == EventKind::kTransferred &&
         event.version != shares_.version(SlotOf(At(event.cell).action));
}

// The clock must not move to an end that was put off or brought forward.
void EventLoop::DropVoidEvents() {
  while (!events_.empty() && Void(events_.top())) events_.pop();
}

void EventLoop::StartReady() {
  if (ready_.size() > 1) std::sort(ready_.begin(), ready_.end());
  for (const auto& [cell, cause] : ready_) {
    const Action& action = At(cell).action;
    cursors_[cell.row].Start(cell.index);
    if (record_) {
      RecordOf(cell).start = now_;
      RecordOf(cell).cause = cause;
    }
    if (IsTransfer(action.kind)) {
      StartTransferEnd(cell, action);
    } else if (IsCollective(action.kind)) {
      StartCollective(cell, action);
    } else {
      const Nanos time = durations_.Of(program_.devices[cell.row].device, action);
      CHECK(time >= 0);
      busy_[cell.row] += time;
      events_.push({now_ + time, cell, EventKind::kComputed});
      StartMarks(cell, action, time);
    }
  }
  ready_.clear();
}

void EventLoop::StartMarks(Cell cell, const Action& action, Nanos time) {
  const auto marks = marks_.find(cell);
  if (marks == marks_.end()) return;
  for (int32_t node : marks->second) {
    const Nanos until = durations_.UntilMark(program_.devices[cell.row].device, action, node);
    CHECK(until >= 0 && until <= time);
    events_.push({now_ + until, cell, EventKind::kMarked, static_cast<uint32_t>(node)});
  }
}

void EventLoop::StartTransferEnd(Cell cell, const Action& action) {
  const int32_t slot = SlotOf(action);
  Meeting& meeting = meetings_[slot];
  Cell& own = IsSend(action.kind) ? meeting.send : meeting.receive;
  CHECK(!own.valid());  // A lane runs one action at a time.
  own = cell;
  if (meeting.send.valid() && meeting.receive.valid()) BeginTransfer(slot, cell);
}

void EventLoop::BeginTransfer(int32_t slot, Cell late) {
  const Meeting& meeting = meetings_[slot];
  if (record_) {
    RecordOf(meeting.send).late = late;
    RecordOf(meeting.receive).late = late;
  }
  const Durations::Transfer transfer = durations_.TransferOf(At(meeting.send).action);
  CHECK(transfer.latency >= 0 && transfer.bytes >= 0);
  const bool flows = transfer.bytes > 0 && !transfer.links.empty();
  if (!flows) {
    events_.push(
        {now_ + transfer.latency, meeting.send, EventKind::kTransferred, shares_.version(slot)});
  } else if (transfer.latency > 0) {
    events_.push({now_ + transfer.latency, meeting.send, EventKind::kLatencyOver});
  } else {
    shares_.Begin(slot, transfer.links, transfer.bytes);
  }
}

void EventLoop::StartCollective(Cell cell, const Action& action) {
  std::vector<Cell>& members = members_[action.channel];
  members.push_back(cell);
  if (members.size() < program_.reductions[action.channel].devices.size()) return;
  Nanos time = 0;
  for (Cell member : members) {
    time = std::max(time, durations_.Of(program_.devices[member.row].device, At(member).action));
    if (record_) RecordOf(member).late = cell;
  }
  events_.push(
      {now_ + time, *std::min_element(members.begin(), members.end()), EventKind::kReduced});
}

void EventLoop::Handle(const Event& event) {
  const Action& action = At(event.cell).action;
  switch (event.kind) {
    case EventKind::kComputed:
      ended_.push_back(event.cell);
      return;
    case EventKind::kMarked:
      marked_.push_back({event.cell, static_cast<int32_t>(event.version)});
      return;
    case EventKind::kLatencyOver: {
      const Durations::Transfer transfer = durations_.TransferOf(action);
      shares_.Begin(SlotOf(action), transfer.links, transfer.bytes);
      return;
    }
    case EventKind::kTransferred: {
      const int32_t slot = SlotOf(action);
      if (shares_.active(slot)) shares_.End(slot);
      Meeting& meeting = meetings_[slot];
      ended_.push_back(meeting.send);
      ended_.push_back(meeting.receive);
      meeting = {};
      return;
    }
    case EventKind::kReduced: {
      std::vector<Cell>& members = members_[action.channel];
      ended_.insert(ended_.end(), members.begin(), members.end());
      members.clear();
      return;
    }
  }
}

// Before ends of the same moment: a pass that has ended has no marks left.
void EventLoop::ReachMarks() {
  if (marked_.size() > 1) std::sort(marked_.begin(), marked_.end());
  for (const auto& [cell, node] : marked_) {
    for (int32_t index : cursors_[cell.row].Reach(cell.index, node)) {
      ready_.push_back({{cell.row, index}, cell});
    }
  }
  marked_.clear();
}

void EventLoop::FinishEnded() {
  if (ended_.size() > 1) std::sort(ended_.begin(), ended_.end());
  for (Cell cell : ended_) {
    ended_flags_[cell.row][cell.index] = true;
    if (record_) RecordOf(cell).end = now_;
    for (int32_t index : cursors_[cell.row].Finish(cell.index)) {
      ready_.push_back({{cell.row, index}, cell});
    }
  }
  ended_.clear();
}

absl::Status EventLoop::Deadlock() const {
  std::string message = absl::StrCat("the program deadlocks after ", FormatDuration(now_), ":");
  Cell first;
  for (int32_t row = 0; row < static_cast<int32_t>(cursors_.size()); ++row) {
    if (cursors_[row].done()) continue;
    const auto& flags = ended_flags_[row];
    const auto index = std::find(flags.begin(), flags.end(), false) - flags.begin();
    if (!first.valid()) first = {row, static_cast<int32_t>(index)};
    absl::StrAppend(&message, " device ", program_.devices[row].device.value(), " waits at ",
                    ToString(program_.devices[row].body[index].action), ";");
  }
  message.back() = '\n';
  return absl::FailedPreconditionError(
      absl::StrCat(message, Grid(program_, first.row, first.index)));
}

Simulation EventLoop::Result() {
  Simulation simulation;
  simulation.step_time = now_;
  for (size_t row = 0; row < cursors_.size(); ++row) {
    const DeviceProgram& device = program_.devices[row];
    simulation.devices.push_back(
        {device.device, busy_[row], device.resident + cursors_[row].peak_memory()});
  }
  if (record_) FillTimeline(simulation);
  return simulation;
}

void EventLoop::FillTimeline(Simulation& simulation) {
  std::vector<Cell> cells;
  for (int32_t row = 0; row < static_cast<int32_t>(records_.size()); ++row) {
    for (int32_t index = 0; index < static_cast<int32_t>(records_[row].size()); ++index) {
      cells.push_back({row, index});
    }
  }
  const auto event = [this](Cell cell) {
    const Record& record = RecordOf(cell);
    return TraceEvent{program_.devices[cell.row].device, At(cell).action, 0, record.start,
                      record.end};
  };
  std::sort(cells.begin(), cells.end(), [this](Cell a, Cell b) {
    return std::tie(RecordOf(a).start, a) < std::tie(RecordOf(b).start, b);
  });
  simulation.timeline.reserve(cells.size());
  for (Cell cell : cells) simulation.timeline.push_back(event(cell));

  Cell last;
  for (Cell cell : cells) {
    if (RecordOf(cell).end != now_) continue;
    if (!last.valid() || cell < last) last = cell;
  }
  Nanos next = now_;
  while (last.valid()) {
    if (RecordOf(last).late.valid()) last = RecordOf(last).late;
    TraceEvent& link = simulation.critical_path.emplace_back(event(last));
    link.end = std::min(link.end, next);
    next = link.start;
    last = RecordOf(last).cause;
  }
  std::reverse(simulation.critical_path.begin(), simulation.critical_path.end());
}

}  // namespace

absl::StatusOr<Simulation> Simulate(const Program& program, const Durations& durations,
                                    const SimulateOptions& options) {
  if (!HasSections(program)) {
    return EventLoop(program, durations, options.timeline, options.stop).Run();
  }
  const Program start = Unroll(program, kStartSteps);
  ASSIGN_OR_RETURN(const Simulation before, EventLoop(start, durations, false, options.stop).Run());
  const Program whole = Unroll(program, kStartSteps + kSteadySteps);
  ASSIGN_OR_RETURN(Simulation simulation,
                   EventLoop(whole, durations, options.timeline, options.stop).Run());
  const auto per_step = [](Nanos longer, Nanos shorter) {
    return (longer - shorter + kSteadySteps / 2) / kSteadySteps;
  };
  simulation.step_time = per_step(simulation.step_time, before.step_time);
  for (size_t d = 0; d < simulation.devices.size(); ++d) {
    Nanos& busy = simulation.devices[d].busy;
    busy = per_step(busy, before.devices[d].busy);
  }
  return simulation;
}

}  // namespace stagewright
