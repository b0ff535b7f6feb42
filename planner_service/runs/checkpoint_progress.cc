#include "planner_service/runs/checkpoint_progress.h"

#include <algorithm>
#include <utility>

namespace stagewright {
namespace {

// A step that a checkpoint is announced for lies so far ahead that all workers hear of it in time.
constexpr absl::Duration kAhead = absl::Seconds(1);
constexpr int64_t kLeastAhead = 2;
constexpr int kMostDoublings = 10;

// Whether there are steps after which no checkpoint is due.
bool LeavesSomeOut(const CheckpointPolicy& policy) {
  return policy.every_steps > (policy.halfway ? 2 : 1);
}

}  // namespace

int64_t StepsAhead(Nanos step_time) {
  return kLeastAhead + Nanos(absl::ToInt64Nanoseconds(kAhead)) / std::max<Nanos>(step_time, 1);
}

std::optional<int64_t> CheckpointProgress::Announce(int64_t step, Nanos step_time,
                                                    int64_t total_steps, absl::Time now) {
  if (every_ == absl::ZeroDuration() || announced_ > 0) return std::nullopt;
  if (now - last_ < every_) return std::nullopt;
  const int64_t due = step + (StepsAhead(step_time) << doublings_);
  if (due >= total_steps && total_steps > 0) return std::nullopt;  // The end comes first.
  announced_ = due;
  return due;
}

std::optional<int64_t> CheckpointProgress::AnnounceHold(int64_t step, Nanos step_time,
                                                        int64_t total_steps,
                                                        const CheckpointPolicy* policy) {
  int64_t due = step + (StepsAhead(step_time) << doublings_);
  // What devices have said of a step already is not said of it again.
  while (due == announced_ || failed_.contains(due) || shares_.contains(due) ||
         (policy != nullptr && LeavesSomeOut(*policy) && policy->IsDue(due))) {
    ++due;
  }
  if (due >= total_steps && total_steps > 0) return std::nullopt;
  hold_ = due;
  return due;
}

void CheckpointProgress::NoteLate() { doublings_ = std::min(doublings_ + 1, kMostDoublings); }

std::optional<WrittenCheckpoint> CheckpointProgress::Add(const WrittenShare& share,
                                                         absl::Time now) {
  if (share.step <= newest_ || failed_.contains(share.step)) return std::nullopt;
  Shares& shares = shares_[share.step];
  if (!shares.devices.insert(share.device).second) return std::nullopt;
  WrittenCheckpoint& written = shares.written;
  written.step = share.step;
  written.files.insert(written.files.end(), share.files.begin(), share.files.end());
  if (written.error.empty()) written.error = share.error;
  written.skipped |= share.skipped;
  const bool announced = announced_ == share.step || hold_ == share.step;
  if (announced && share.late) NoteLate();
  if (shares.devices.size() < devices_) return std::nullopt;
  if (announced_ == share.step) announced_ = 0;
  WrittenCheckpoint done = std::move(written);
  shares_.erase(done.step);
  // Devices skip a checkpoint while the one before is written, which may be whole after that.
  if (!done.error.empty()) {
    failed_.insert(done.step);
    return done;
  }
  shares_.erase(shares_.begin(), shares_.upper_bound(done.step));
  failed_.erase(failed_.begin(), failed_.upper_bound(done.step));
  newest_ = done.step;
  last_ = now;
  without_manifest_ = done;
  return done;
}

bool CheckpointProgress::IsSkipped(int64_t step) const {
  const auto shares = shares_.find(step);
  return failed_.contains(step) || (shares != shares_.end() && shares->second.written.skipped);
}

void CheckpointProgress::EndManifest(int64_t step) {
  if (without_manifest_.has_value() && without_manifest_->step == step) without_manifest_.reset();
}

}  // namespace stagewright
