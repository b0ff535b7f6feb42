#include "common/program/run_cursor.h"

#include "common/base/check.h"

namespace stagewright {

std::vector<RunAction> RunCursor::Append(const std::vector<ProgramAction>& section) {
  const int64_t number = sections();
  std::map<LaneKey, std::pair<int32_t, int32_t>> lanes;  // First and last action.
  for (size_t i = 0; i < section.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    const auto [lane, is_new] = lanes.try_emplace(LaneOf(section[i].action), index, index);
    if (!is_new) lane->second.second = index;
  }
  std::vector<int32_t> held;
  for (const auto& [lane, ends] : lanes) {
    const auto [last, is_new] = last_.try_emplace(lane);
    if (!is_new && !finished(last->second)) {
      held.push_back(ends.first);
      successors_[last->second] = {number, ends.first};
    }
    last->second = {number, ends.second};
  }
  const Cursor& cursor = parts_.emplace_back(section, held);
  std::vector<RunAction> ready;
  for (int32_t index : cursor.Ready()) ready.push_back({number, index});
  return ready;
}

void RunCursor::Start(RunAction action) {
  CHECK(action.section >= first_ && action.section < sections());
  CursorOf(action.section).Start(action.index);
}

std::vector<RunAction> RunCursor::Finish(RunAction action) {
  CHECK(action.section >= first_ && action.section < sections());
  std::vector<RunAction> ready;
  for (int32_t index : CursorOf(action.section).Finish(action.index))
    ready.push_back({action.section, index});
  const auto successor = successors_.find(action);
  if (successor != successors_.end()) {
    if (CursorOf(successor->second.section).Release(successor->second.index))
      ready.push_back(successor->second);
    successors_.erase(successor);
  }
  while (!parts_.empty() && parts_.front().done()) {
    parts_.pop_front();
    ++first_;
  }
  return ready;
}

std::vector<RunAction> RunCursor::Reach(RunAction action, int32_t node) {
  CHECK(action.section >= first_ && action.section < sections());
  std::vector<RunAction> ready;
  for (int32_t index : CursorOf(action.section).Reach(action.index, node))
    ready.push_back({action.section, index});
  return ready;
}

bool RunCursor::finished(RunAction action) const {
  return action.section < first_ ||
         parts_[static_cast<size_t>(action.section - first_)].finished(action.index);
}

bool RunCursor::done(int64_t section) const {
  CHECK(section < sections());
  return section < first_ || parts_[static_cast<size_t>(section - first_)].done();
}

}  // namespace stagewright
