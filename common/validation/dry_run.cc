#include "common/validation/dry_run.h"

#include <deque>
#include <utility>

#include "common/program/cursor.h"

namespace stagewright {
namespace {

struct Started {
  int32_t row = 0;
  int32_t action = 0;
};

class Runner {
 public:
  explicit Runner(const Program& program) : program_(program) {
    meetings_.resize(2 * program.channels.size() + program.reductions.size());
    for (const DeviceProgram& device : program.devices) cursors_.emplace_back(device.body);
  }

  void Run() {
    for (size_t d = 0; d < cursors_.size(); ++d) Enqueue(static_cast<int32_t>(d));
    while (!queue_.empty()) {
      const Started next = queue_.front();
      queue_.pop_front();
      cursors_[next.row].Start(next.action);
      const Action& action = ActionOf(next);
      if (IsCompute(action.kind)) {
        Finish(next);
      } else {
        Meet(next, action);
      }
    }
  }

  std::vector<Stuck> Unfinished() const {
    std::vector<Stuck> stuck;
    for (size_t d = 0; d < cursors_.size(); ++d) {
      if (!cursors_[d].done()) stuck.push_back(Describe(static_cast<int32_t>(d)));
    }
    return stuck;
  }

 private:
  const std::vector<ProgramAction>& Body(int32_t row) const { return program_.devices[row].body; }
  const Action& ActionOf(Started s) const { return Body(s.row)[s.action].action; }

  void Enqueue(int32_t row) {
    for (int32_t action : cursors_[row].Ready()) queue_.push_back({row, action});
  }

  void Finish(Started started) {
    for (int32_t action : cursors_[started.row].Finish(started.action))
      queue_.push_back({started.row, action});
  }

  // Sends and receives of one channel and direction meet in pairs; collectives all together.
  void Meet(Started started, const Action& action) {
    const bool sum = IsCollective(action.kind);
    const bool gradient =
        action.kind == ActionKind::kSendGradient || action.kind == ActionKind::kReceiveGradient;
    const size_t place = sum ? 2 * program_.channels.size() + action.channel
                             : 2 * static_cast<size_t>(action.channel) + (gradient ? 1 : 0);
    const size_t size = sum ? program_.reductions[action.channel].devices.size() : 2;
    std::vector<Started>& waiting = meetings_[place];
    waiting.push_back(started);
    if (waiting.size() < size) return;
    for (Started one : std::exchange(waiting, {})) Finish(one);
  }

  Stuck Describe(int32_t row) const {
    const std::vector<ProgramAction>& body = Body(row);
    Stuck stuck{row, -1, {}};
    for (size_t i = 0; i < body.size(); ++i) {
      if (cursors_[row].finished(static_cast<int32_t>(i))) continue;
      if (stuck.action < 0) stuck.action = static_cast<int32_t>(i);
      if (!IsCompute(body[i].action.kind)) continue;
      stuck.action = static_cast<int32_t>(i);
      break;
    }
    for (int32_t before : body[stuck.action].after) {
      if (!cursors_[row].finished(before)) stuck.waits_for.push_back(before);
    }
    for (const PassMark& mark : body[stuck.action].after_marks) {
      if (!cursors_[row].finished(mark.action)) stuck.waits_for.push_back(mark.action);
    }
    return stuck;
  }

  const Program& program_;
  std::vector<Cursor> cursors_;
  std::vector<std::vector<Started>> meetings_;  // Two per channel, then one per reduction.
  std::deque<Started> queue_;
};

}  // namespace

std::vector<Stuck> DryRun(const Program& program) {
  Runner runner(program);
  runner.Run();
  return runner.Unfinished();
}

}  // namespace stagewright
