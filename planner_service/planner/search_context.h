// What a search is given beside its problem: deadline, cancellation, effort, progress,
// measurements.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>

#include "common/base/status.h"
#include "common/strategy/strategy.h"

namespace stagewright {

struct Problem;

// Seconds of one mini-batch under a strategy, simulated or measured. An error: the strategy cannot
// run (over memory, ...).
using MeasureStrategy = std::function<absl::StatusOr<double>(const Strategy&)>;

// Deadline, cancellation, effort and progress of one search. Planners poll Expired() at least every
// 10 ms.
class SearchContext {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kAnyEffort = std::numeric_limits<int64_t>::max();

  explicit SearchContext(Clock::time_point deadline = Clock::time_point::max())
      : deadline_(deadline) {}
  // A part of another search: it expires with it, or after so much effort, which no clock
  // measures: one unit for each poll, and what is charged. `outer` outlives the context.
  SearchContext(const SearchContext& outer, int64_t most_effort)
      : outer_(&outer), most_effort_(most_effort) {}
  // A part of another search: it expires with it or at `deadline`, and has its measurements.
  // `outer` outlives the context.
  SearchContext(const SearchContext& outer, Clock::time_point deadline)
      : measure(outer.measure), outer_(&outer), deadline_(deadline) {}

  // When half of the time is over that is left; never without a deadline.
  Clock::time_point HalfTime() const {
    const Clock::time_point now = Clock::now();
    return deadline_ == Clock::time_point::max() ? deadline_ : now + (deadline_ - now) / 2;
  }

  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool Expired() const {
    Charge(1);
    if (effort() > most_effort_) return true;
    if (!cancelled_.load(std::memory_order_relaxed) && Clock::now() < deadline_ &&
        (outer_ == nullptr || !outer_->Expired())) {
      return false;
    }
    stopped_.store(true, std::memory_order_relaxed);
    return true;
  }
  // Whether a poll has said so for another reason than this context's own effort: what was found
  // until then depends on the clock.
  bool Stopped() const { return stopped_.load(std::memory_order_relaxed); }

  // Adds work between two polls: `effort` is the number of polls of a tight loop that would take
  // about as long.
  void Charge(int64_t effort) const { effort_.fetch_add(effort, std::memory_order_relaxed); }
  int64_t effort() const { return effort_.load(std::memory_order_relaxed); }

  // Called with each strategy better than all before it, from the searching thread.
  std::function<void(const Strategy&)> on_improvement;
  // For planners that learn by trial (PlannerAbilities::learns_by_trial): how a strategy of the
  // problem is measured, for instance on workers. Null: by simulation.
  std::function<MeasureStrategy(const Problem&)> measure;

 private:
  const SearchContext* outer_ = nullptr;
  std::atomic<bool> cancelled_{false};
  mutable std::atomic<bool> stopped_{false};
  mutable std::atomic<int64_t> effort_{0};
  int64_t most_effort_ = kAnyEffort;
  Clock::time_point deadline_ = Clock::time_point::max();
};

// What a planner charges for having a strategy evaluated. O(stages).
int64_t EffortOfJudging(const Strategy& strategy);

}  // namespace stagewright
