#include "worker_daemon/step/flush_steps.h"

#include <algorithm>
#include <limits>

namespace stagewright {

int64_t FlushSteps::Next(DeviceId device, int64_t step) {
  absl::MutexLock lock(&mutex_);
  const auto clear = [this, step]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return offered_ == 0 || offered_ > step + 2;
  };
  mutex_.Await(absl::Condition(&clear));
  final_[device] = step + 2;
  int64_t next = every_ > 0 ? (step / every_ + 1) * every_ : std::numeric_limits<int64_t>::max();
  const auto settled = settled_.upper_bound(step);
  if (settled != settled_.end()) next = std::min(next, *settled);
  return next;
}

bool FlushSteps::Offer(int64_t steps) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return false;
  if (settled_.contains(steps)) return true;
  const bool late = std::any_of(final_.begin(), final_.end(),
                                [&](const auto& entry) { return entry.second >= steps; });
  offered_ = late ? 0 : steps;
  return !late;
}

void FlushSteps::Settle(int64_t steps) {
  absl::MutexLock lock(&mutex_);
  settled_.insert(steps);
  if (offered_ == steps) offered_ = 0;
}

void FlushSteps::Withdraw() {
  absl::MutexLock lock(&mutex_);
  offered_ = 0;
}

void FlushSteps::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  offered_ = 0;
}

int64_t FlushSteps::settled() const {
  absl::MutexLock lock(&mutex_);
  return settled_.empty() ? 0 : *settled_.rbegin();
}

}  // namespace stagewright
