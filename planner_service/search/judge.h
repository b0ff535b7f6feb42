// The best of many candidates, in the evaluator's eyes: for planners that propose a few strategies
// by a formula of their own and let the simulation decide.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planner_service/planner/planner.h"
#include "planner_service/search/placement_views.h"

namespace stagewright {

// The evaluator's word on a strategy, as searches take it.
struct Verdict {
  // Iteration time; nullopt if it was refused or the evaluation stopped.
  std::optional<Nanos> time;
  Bytes peak = 0;  // The most memory that a device needs; with a time only.
  // Why it is refused: RESOURCE_EXHAUSTED says memory, FAILED_PRECONDITION that no program of it
  // may run (a condition broken, a tensor that cannot be split). OK if it is not.
  absl::Status rejection;
};

// Evaluates a strategy of the problem, by whomever it was made: the one place that tells refusals,
// which searches pass over, from errors, which are bugs in the strategy's maker. Ends early, with
// neither a time nor a rejection, once `stop` says so. Takes what Evaluate() does.
absl::StatusOr<Verdict> VerdictOn(const Problem& problem, const Strategy& strategy,
                                  std::function<bool()> stop = nullptr);

// The same for what a planner made and compares with others: briefly (EvaluateOptions::brief), as
// the front door evaluates the answer.
absl::StatusOr<Verdict> SearchVerdictOn(const Problem& problem, const Strategy& strategy,
                                        std::function<bool()> stop = nullptr);

struct Proposal {
  Strategy strategy;
  double estimate = 0;  // Iteration time that the planner expects, seconds.
  std::string text;     // Tells proposals apart; breaks ties.
};

class Judge {
 public:
  // Both outlive it.
  Judge(const Problem& problem, SearchContext& context) : problem_(problem), context_(context) {}
  // For proposals for a view of the whole's cluster (null: for the cluster itself): each is
  // evaluated, and kept, on the devices that it stands for. What is best here is offered to
  // `whole`, whose count goes on; all else is this judge's own. Both outlive it.
  Judge(Judge& whole, const PlacementView* view)
      : problem_(whole.problem_), context_(whole.context_), whole_(&whole), view_(view) {}

  // Evaluates proposals, best estimate first, until there were `most`, an estimate exceeds the best
  // time by the factor `hope`, or the context expires. What the evaluator refuses (Verdict) is
  // passed over; any other error is a bug of the planner and returned with the proposal's text.
  // Equal texts are looked at once, and what comes to the strategy of another text or view has its
  // verdict. The context's on_improvement hears of each better strategy. An evaluation takes what
  // Evaluate() does.
  absl::Status Consider(std::vector<Proposal> proposals, int64_t most, double hope);

  // The strategy with the least time, of these the one with the least peak memory, then by text;
  // null if none was accepted yet. On the problem's devices.
  const Strategy* best() const { return best_.get(); }
  Nanos best_time() const { return best_time_; }  // Iteration time; 0 without one.
  double best_seconds() const { return ToSeconds(best_time_); }
  int64_t count() const { return count_; }        // Strategies looked at.
  int64_t accepted() const { return accepted_; }  // Those that the evaluator accepted.
  // The best of all views, as best_seconds().
  double seconds_to_beat() const {
    return whole_ == nullptr ? best_seconds() : whole_->best_seconds();
  }
  // What the last one that was passed over is refused for; OK without one.
  const absl::Status& rejection() const { return rejection_; }

 private:
  absl::Status Evaluate(Proposal& proposal);
  absl::StatusOr<Verdict> VerdictOnce(const Strategy& strategy);
  void Keep(const Strategy& strategy, Nanos time, Bytes peak, const std::string& text);

  const Problem& problem_;
  SearchContext& context_;
  Judge* whole_ = nullptr;
  const PlacementView* view_ = nullptr;
  std::unique_ptr<Strategy> best_;
  Nanos best_time_ = 0;
  Bytes best_peak_ = 0;
  std::string best_text_;
  std::set<std::string> seen_;
  std::vector<std::pair<Strategy, Verdict>> known_;  // The whole's: by all views.
  int64_t count_ = 0;
  int64_t accepted_ = 0;
  absl::Status rejection_;
};

}  // namespace stagewright
