// The best of many candidates, in the evaluator's eyes: for planners that propose a few strategies
// by a formula of their own and let the simulation decide.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "planner_service/planner/planner.h"

namespace stagewright {

struct Proposal {
  Strategy strategy;
  double estimate = 0;  // Iteration time that the planner expects, seconds.
  std::string text;     // Tells proposals apart; breaks ties.
};

class Judge {
 public:
  // Both outlive it.
  Judge(const Problem& problem, SearchContext& context) : problem_(problem), context_(context) {}

  // Evaluates proposals, best estimate first, until there were `most`, an estimate exceeds the best
  // time by the factor `hope`, or the context expires. What the evaluator refuses (memory:
  // RESOURCE_EXHAUSTED; tensors that cannot be split: FAILED_PRECONDITION) is passed over; any
  // other error is a bug of the planner and returned with the proposal's text. Equal texts are
  // evaluated once. The context's on_improvement hears of each better strategy. An evaluation takes
  // what Evaluate() does.
  absl::Status Consider(std::vector<Proposal> proposals, int64_t most, double hope);

  // The strategy with the least time, of these the one with the least peak memory, then by text;
  // null if none was accepted yet.
  const Strategy* best() const { return best_.get(); }
  double best_seconds() const { return best_seconds_; }        // Iteration time; 0 without one.
  int64_t count() const { return count_; }                     // Evaluations.
  const std::string& rejection() const { return rejection_; }  // The last one's message.

 private:
  absl::Status Evaluate(Proposal& proposal);

  const Problem& problem_;
  SearchContext& context_;
  std::unique_ptr<Strategy> best_;
  double best_seconds_ = 0;
  Bytes best_peak_ = 0;
  std::string best_text_;
  std::set<std::string> seen_;
  int64_t count_ = 0;
  std::string rejection_;
};

}  // namespace stagewright
