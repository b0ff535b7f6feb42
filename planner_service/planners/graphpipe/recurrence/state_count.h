// How many states a search has looked at; now and then it looks at the clock, too.
#pragma once

#include <cstdint>
#include <utility>

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
    return !context_->Expired(Untold());
  }
  // Tells the context of what it has not been told yet.
  void Tell() { context_->Spend(Untold()); }
  int64_t states() const { return states_; }

 private:
  static constexpr int64_t kPollEvery = 4096;

  Nanos Untold() { return work::kPartitionState * (states_ - std::exchange(told_, states_)); }

  const SearchContext* context_;
  int64_t states_ = 0;
  int64_t next_poll_ = 0;
  int64_t told_ = 0;  // The context knows of so many.
};

}  // namespace stagewright
