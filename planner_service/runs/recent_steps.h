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
  // Whether the pace changed is judged by the newest of them, beside all.
  static constexpr size_t kNewest = 8;
  static constexpr double kChange = 1.25;

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
  Nanos Median() const { return MedianOf(times_.size()); }

  // The median of the newest steps is off that of all by a factor of kChange or more; not before
  // there are three times as many.
  bool Changed() const {
    if (size() < 3 * kNewest) return false;
    const auto newest = static_cast<double>(MedianOf(kNewest));
    const auto all = static_cast<double>(Median());
    return newest >= kChange * all || newest * kChange <= all;
  }

 private:
  Nanos MedianOf(size_t newest) const {
    if (times_.empty()) return 0;
    std::vector<Nanos> sorted(times_.end() - static_cast<std::ptrdiff_t>(newest), times_.end());
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }

  std::deque<Nanos> times_;
  bool any_ = false;
  bool only_first_ = false;
};

}  // namespace stagewright
