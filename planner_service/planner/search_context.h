// What a search is given beside its problem: deadline, cancellation, effort, progress,
// measurements.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>

#include "common/base/status.h"
#include "common/base/units.h"
#include "common/strategy/strategy.h"
#include "planner_service/planner/work_units.h"

namespace stagewright {

struct Problem;

// Seconds of one mini-batch under a strategy, simulated or measured. An error: the strategy cannot
// run (over memory, ...).
using MeasureStrategy = std::function<absl::StatusOr<double>(const Strategy&)>;

// Deadline, cancellation, effort and progress of one search. Planners poll Expired() at least every
// 10 ms.
//
// Effort and work are counted, never measured, so that equal searches end alike on all machines.
// Effort is in units of the part that it bounds. Work is one currency for all parts of a search:
// about the time that a release build takes for it on one core.
class SearchContext {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kAnyEffort = std::numeric_limits<int64_t>::max();
  static constexpr Nanos kAnyWork = std::numeric_limits<Nanos>::max();

  explicit SearchContext(Clock::time_point deadline = Clock::time_point::max())
      : deadline_(deadline) {}
  // A part of another search: it expires with it, or after so much effort, which no clock
  // measures: one unit for each poll, and what is charged. `outer` outlives the context.
  SearchContext(const SearchContext& outer, int64_t most_effort)
      : outer_(&outer), most_effort_(most_effort) {}
  // A part of another search: it expires with it, or after so much work, and has its measurements.
  // `outer` outlives the context.
  SearchContext(const SearchContext& outer, Nanos most_work)
      : measure(outer.measure), outer_(&outer), most_work_(most_work) {}
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
  // `since`: the work since the last poll, where the search counts it.
  bool Expired(Nanos since = work::kPoll) const {
    Spend(since);
    return IsOver();
  }
  // Whether a poll has said so because of a deadline or a cancellation, this context's own or that
  // of the search that it is a part of: what was found until then depends on the clock.
  bool Stopped() const { return stopped_.load(std::memory_order_relaxed); }
  // A part of this search was Stopped() by its own deadline, so that the answer depends on the
  // clock.
  void NoteStopped() { stopped_.store(true, std::memory_order_relaxed); }

  // Adds effort between two polls: `effort` is the number of polls of a tight loop that would take
  // about as long.
  void Charge(int64_t effort) const { effort_.fetch_add(effort, std::memory_order_relaxed); }
  int64_t effort() const { return effort_.load(std::memory_order_relaxed); }

  // Adds work to this context and all that it is a part of. A poll is work by itself.
  void Spend(Nanos work) const {
    for (const SearchContext* context = this; context != nullptr; context = context->outer_)
      context->work_.fetch_add(work.count(), std::memory_order_relaxed);
  }
  // All work so far, its parts' included.
  Nanos work() const { return Nanos(work_.load(std::memory_order_relaxed)); }
  // What may still be spent here and in all that this is a part of; not negative.
  Nanos WorkLeft() const;

  // No strategy of the problem is faster (evaluator/lower_bound.h), where that is known already.
  // Parts of a search, which may ask about other problems, are not told.
  std::optional<Nanos> lower_bound;
  // Called with each strategy better than all before it, from the searching thread.
  std::function<void(const Strategy&)> on_improvement;
  // For planners that learn by trial (PlannerAbilities::learns_by_trial): how a strategy of the
  // problem is measured, for instance on workers. Null: by simulation.
  std::function<MeasureStrategy(const Problem&)> measure;

 private:
  bool IsOver() const;

  const SearchContext* outer_ = nullptr;
  std::atomic<bool> cancelled_{false};
  mutable std::atomic<bool> stopped_{false};
  mutable std::atomic<int64_t> effort_{0};
  int64_t most_effort_ = kAnyEffort;
  mutable std::atomic<int64_t> work_{0};
  Nanos most_work_ = kAnyWork;
  Clock::time_point deadline_ = Clock::time_point::max();
};

// What a planner charges for having a strategy evaluated. O(stages).
int64_t EffortOfJudging(const Strategy& strategy);
// The work of that.
Nanos WorkOfJudging(const Strategy& strategy);

}  // namespace stagewright
