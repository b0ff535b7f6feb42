#include "planner_service/runs/setbacks.h"

#include <algorithm>

namespace stagewright {

void Setbacks::Note(const std::string& cause, int64_t step, bool may_pass) {
  const bool progress = step > furthest_;
  furthest_ = std::max(furthest_, step);
  fruitless_ = progress ? 0 : fruitless_ + 1;
  alike_ = may_pass ? 0 : progress || cause != cause_ ? 1 : alike_ + 1;
  cause_ = cause;
}

absl::Duration Setbacks::BackOff() const {
  if (fruitless_ == 0) return absl::ZeroDuration();
  constexpr int kMostDoublings = 10;  // Beyond the longest wait.
  return std::min(kLongestBackOff, kFirstBackOff * (1 << std::min(fruitless_ - 1, kMostDoublings)));
}

}  // namespace stagewright
