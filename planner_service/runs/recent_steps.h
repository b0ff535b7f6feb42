// The typical time of a run's last steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

#include "common/base/units.h"

namespace stagewright {

class RecentSteps {
 public:
  static constexpr size_t kMost = 64;

  // The first step of a run pays for memory and connections: it counts until there is another.
  void Add(Nanos time) {
    if (only_first_) times_.clear();
    only_first_ = !any_;
    any_ = true;
    times_.push_back(time);
    if (times_.size() > kMost) times_.pop_front();
  }

  // Steps that count, without the first.
  size_t size() const { return only_first_ ? 0 : times_.size(); }

  // The median, the larger of two in the middle; 0 without a step.
  Nanos Median() const {
    if (times_.empty()) return 0;
    std::vector<Nanos> sorted(times_.begin(), times_.end());
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }

 private:
  std::deque<Nanos> times_;
  bool any_ = false;
  bool only_first_ = false;
};

}  // namespace stagewright
