// How many states a search has looked at; now and then it looks at the clock, too.
#pragma once

#include <cstdint>

#include "planner_service/planner/planner.h"

namespace stagewright {

class StateCount {
 public:
  // The context outlives the count.
  explicit StateCount(const SearchContext& context) : context_(&context) {}

  void Add(int64_t states) { states_ += states; }
  // Counts a state; false if the context expired.
  bool Next() {
    if (++states_ <= next_poll_) return true;
    next_poll_ = states_ + kPollEvery;
    context_->Spend(kWorkOfState * (states_ - told_));
    told_ = states_;
    return !context_->Expired();
  }
  int64_t states() const { return states_; }

 private:
  static constexpr int64_t kPollEvery = 4096;
  static constexpr Nanos kWorkOfState = 40;

  const SearchContext* context_;
  int64_t states_ = 0;
  int64_t next_poll_ = 0;
  int64_t told_ = 0;  // The context knows of so many.
};

}  // namespace stagewright
