// The best strategies so far, as the evaluator judges them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner_service/planner/planner.h"
#include "planner_service/search/judge.h"

namespace stagewright {

class Incumbents {
 public:
  // Arguments outlive the incumbents. Improvements of the best are passed on to
  // `context.on_improvement`.
  Incumbents(const Problem& problem, const PlanOptions& options, SearchContext& context);

  // The verdict on a strategy, or `known` if the evaluator has said it before; without a time also
  // if the context expired meanwhile and there is another answer. An error is a bug in who made it.
  absl::StatusOr<Verdict> Consider(const Strategy& strategy,
                                   std::optional<Verdict> known = std::nullopt);

  // Switches recomputation off in every stage of the incumbents where it makes nothing slower and
  // fits into memory, unless the options always want it. Judges a strategy per stage that
  // recomputes, within a counted effort.
  absl::Status DropIdleRecomputation();

  // The best of all strategies, and of the sequential ones.
  const std::optional<Strategy>& best() const { return best_; }
  const std::optional<Strategy>& sequential() const { return sequential_; }
  Nanos best_time() const { return best_time_; }
  Nanos sequential_time() const { return sequential_time_; }
  const std::vector<Strategy>& accepted() const { return accepted_; }
  // The best time on several devices; nullopt if there is none.
  std::optional<Nanos> several_time() const { return several_time_; }
  int64_t judged() const { return judged_; }
  const absl::Status& rejection() const { return rejection_; }  // The last one; OK if none.

 private:
  absl::StatusOr<Verdict> Judge(const Strategy& strategy);

  const Problem& problem_;
  const PlanOptions& options_;
  SearchContext& context_;
  std::optional<Strategy> best_, sequential_;
  Nanos best_time_ = 0, sequential_time_ = 0;
  std::optional<Nanos> several_time_;
  std::vector<Strategy> accepted_;
  int64_t judged_ = 0;
  absl::Status rejection_;
};

}  // namespace stagewright
