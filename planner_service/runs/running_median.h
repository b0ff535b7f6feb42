// The median of values that come one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace stagewright {

class RunningMedian {
 public:
  // O(log n).
  void Add(int64_t value) {
    if (upper_.empty() || value >= upper_.top()) {
      upper_.push(value);
    } else {
      lower_.push(value);
    }
    // The upper half has as many as the lower one, or one more.
    if (upper_.size() > lower_.size() + 1) {
      lower_.push(upper_.top());
      upper_.pop();
    } else if (lower_.size() > upper_.size()) {
      upper_.push(lower_.top());
      lower_.pop();
    }
  }

  // The median of all values so far, the larger of two in the middle; 0 if there is none.
  int64_t value() const { return upper_.empty() ? 0 : upper_.top(); }

 private:
  std::priority_queue<int64_t> lower_;
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> upper_;
};

}  // namespace stagewright
