#include "common/program/cursor.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "common/base/check.h"

namespace stagewright {

LaneKey LaneOf(const Action& action) {
  if (IsTransfer(action.kind)) return {action.channel, static_cast<int32_t>(action.kind)};
  if (IsCollective(action.kind)) return {-1, static_cast<int32_t>(ActionKind::kAllReduce)};
  return {-1, 0};
}

Cursor::Cursor(const std::vector<ProgramAction>& section, const std::vector<int32_t>& held)
    : section_(&section) {
  const auto n = static_cast<int32_t>(section.size());
  missing_.assign(n, 0);
  for (int32_t index : held) ++missing_[index];
  state_.assign(n, State::kWaiting);
  std::vector<int32_t> lane_before(n, -1);
  absl::flat_hash_map<int64_t, int32_t> last_of_lane;
  dependents_begin_.assign(n + 1, 0);
  for (int32_t i = 0; i < n; ++i) {
    const LaneKey lane = LaneOf(section[i].action);
    const auto [last, first] = last_of_lane.try_emplace(int64_t{lane.channel} * 16 + lane.kind, i);
    if (!first) {
      lane_before[i] = last->second;
      last->second = i;
      ++dependents_begin_[lane_before[i] + 1];
      ++missing_[i];
    }
    for (int32_t before : section[i].after) {
      CHECK(before >= 0 && before < n);
      ++dependents_begin_[before + 1];
      ++missing_[i];
    }
    for (const PassMark& mark : section[i].after_marks) {
      CHECK(mark.action >= 0 && mark.action < n);
      ++dependents_begin_[mark.action + 1];
      ++missing_[i];
    }
  }
  for (int32_t i = 0; i < n; ++i) dependents_begin_[i + 1] += dependents_begin_[i];
  dependents_.resize(dependents_begin_[n]);
  std::vector<int32_t> next(dependents_begin_.begin(), dependents_begin_.end() - 1);
  for (int32_t i = 0; i < n; ++i) {
    if (lane_before[i] >= 0) dependents_[next[lane_before[i]]++] = {i};
    for (int32_t before : section[i].after) dependents_[next[before]++] = {i};
    for (const PassMark& mark : section[i].after_marks)
      dependents_[next[mark.action]++] = {i, mark.node};
    if (missing_[i] == 0) {
      state_[i] = State::kReady;
      ready_.push_back(i);
    }
  }
}

void Cursor::Start(int32_t index) {
  CHECK(index >= 0 && index < static_cast<int32_t>(state_.size()));
  CHECK(state_[index] == State::kReady);
  state_[index] = State::kRunning;
  ready_.erase(std::lower_bound(ready_.begin(), ready_.end(), index));
  memory_ += (*section_)[index].acquire;
  peak_memory_ = std::max(peak_memory_, memory_);
}

bool Cursor::Arrive(int32_t index) {
  if (--missing_[index] > 0) return false;
  state_[index] = State::kReady;
  ready_.insert(std::lower_bound(ready_.begin(), ready_.end(), index), index);
  return true;
}

bool Cursor::Release(int32_t index) {
  CHECK(missing_[index] > 0);
  return Arrive(index);
}

const std::vector<int32_t>& Cursor::Finish(int32_t index) {
  CHECK(index >= 0 && index < static_cast<int32_t>(state_.size()));
  CHECK(state_[index] == State::kRunning);
  state_[index] = State::kFinished;
  ++finished_;
  memory_ -= (*section_)[index].release;
  became_ready_.clear();
  for (int32_t d = dependents_begin_[index]; d < dependents_begin_[index + 1]; ++d) {
    const Dependent& dependent = dependents_[d];
    if (dependent.mark == Dependent::kReached) continue;
    if (Arrive(dependent.action)) became_ready_.push_back(dependent.action);
  }
  if (became_ready_.size() > 1) std::sort(became_ready_.begin(), became_ready_.end());
  return became_ready_;
}

const std::vector<int32_t>& Cursor::Reach(int32_t index, int32_t node) {
  CHECK(index >= 0 && index < static_cast<int32_t>(state_.size()));
  CHECK(state_[index] == State::kRunning && node >= 0);
  became_ready_.clear();
  for (int32_t d = dependents_begin_[index]; d < dependents_begin_[index + 1]; ++d) {
    Dependent& dependent = dependents_[d];
    if (dependent.mark != node) continue;
    dependent.mark = Dependent::kReached;
    if (Arrive(dependent.action)) became_ready_.push_back(dependent.action);
  }
  if (became_ready_.size() > 1) std::sort(became_ready_.begin(), became_ready_.end());
  return became_ready_;
}

}  // namespace stagewright
