#include "tests/support/fake_driver.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>

#include "common/program/cursor.h"

namespace stagewright::testing {
namespace {

struct Event {
  Nanos time = 0;
  int64_t number = 0;  // Breaks ties.
  int32_t row = 0;
  int32_t action = 0;
  bool finish = false;
  int32_t mark = -1;  // The node of a mark that is reached.

  bool operator>(const Event& other) const {
    return std::tie(time, number) > std::tie(other.time, other.number);
  }
};

class Driver {
 public:
  Driver(const Program& program, Rng& rng, Nanos longest)
      : program_(program), rng_(rng), longest_(longest) {
    for (const DeviceProgram& device : program.devices) {
      cursors_.emplace_back(device.body);
      started_.emplace_back(device.body.size());
    }
    in_flight_.assign(program.stages.size(), 0);
    run_.most_in_flight.assign(program.stages.size(), 0);
  }

  FakeRun Run() {
    for (size_t d = 0; d < cursors_.size(); ++d) {
      for (int32_t action : cursors_[d].Ready()) Schedule(static_cast<int32_t>(d), action);
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      event.mark >= 0 ? Reach(event) : event.finish ? Finish(event) : Start(event);
    }
    run_.done = std::all_of(cursors_.begin(), cursors_.end(),
                            [](const Cursor& cursor) { return cursor.done(); });
    for (const Cursor& cursor : cursors_) run_.memory_left.push_back(cursor.memory());
    return std::move(run_);
  }

 private:
  const Action& ActionOf(const Event& event) const {
    return program_.devices[event.row].body[event.action].action;
  }
  void Push(Nanos time, int32_t row, int32_t action, bool finish) {
    events_.push({time, number_++, row, action, finish, -1});
  }
  void Schedule(int32_t row, int32_t action) {
    Push(now_ + Nanos(Uniform(rng_, 0, longest_.count())), row, action, false);
  }

  void Start(const Event& event) {
    now_ = event.time;
    cursors_[event.row].Start(event.action);
    started_[event.row][event.action] = now_;
    const Action& action = ActionOf(event);
    if (action.kind == ActionKind::kForward) {
      int64_t& count = in_flight_[action.stage.index()];
      count += action.samples.size();
      int64_t& most = run_.most_in_flight[action.stage.index()];
      most = std::max(most, count);
    }
    if (IsCompute(action.kind)) {
      const int64_t time = Uniform(rng_, 1, longest_.count());
      for (int32_t node : MarksOf(event)) {
        const Nanos at = now_ + Nanos(Uniform(rng_, 0, time));
        events_.push({at, number_++, event.row, event.action, false, node});
      }
      Push(now_ + Nanos(time), event.row, event.action, true);
      return;
    }
    const bool sum = IsCollective(action.kind);
    const bool gradient =
        action.kind == ActionKind::kSendGradient || action.kind == ActionKind::kReceiveGradient;
    auto& waiting = meetings_[{action.channel, sum ? 2 : gradient}];
    waiting.push_back(event);
    const size_t size = sum ? program_.reductions[action.channel].devices.size() : 2;
    if (waiting.size() < size) return;
    for (const Event& one : waiting)
      Push(now_ + Nanos(Uniform(rng_, 1, longest_.count())), one.row, one.action, true);
    waiting.clear();
  }

  std::set<int32_t> MarksOf(const Event& event) const {
    std::set<int32_t> nodes;
    for (const ProgramAction& item : program_.devices[event.row].body) {
      for (const PassMark& mark : item.after_marks) {
        if (mark.action == event.action) nodes.insert(mark.node);
      }
    }
    return nodes;
  }

  void Reach(const Event& event) {
    now_ = event.time;
    for (int32_t next : cursors_[event.row].Reach(event.action, event.mark))
      Schedule(event.row, next);
  }

  void Finish(const Event& event) {
    now_ = event.time;
    const Action& action = ActionOf(event);
    run_.trace.push_back(
        {program_.devices[event.row].device, action, 0, started_[event.row][event.action], now_});
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput)
      in_flight_[action.stage.index()] -= action.samples.size();
    for (int32_t next : cursors_[event.row].Finish(event.action)) Schedule(event.row, next);
  }

  const Program& program_;
  Rng& rng_;
  Nanos longest_;
  Nanos now_ = 0;
  int64_t number_ = 0;
  std::vector<Cursor> cursors_;
  std::vector<std::vector<Nanos>> started_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::map<std::pair<int32_t, int>, std::vector<Event>> meetings_;
  std::vector<int64_t> in_flight_;
  FakeRun run_;
};

}  // namespace

FakeRun RunWithRandomDelays(const Program& program, Rng& rng, Nanos longest) {
  return Driver(program, rng, longest).Run();
}

}  // namespace stagewright::testing
