// Runs the planners that can do what the options ask, quick ones before the others.
#pragma once

#include <cstddef>
#include <vector>

#include "planner_service/planner/planner.h"
#include "planner_service/planners/auto/incumbents.h"
#include "planner_service/planners/auto/members.h"

namespace stagewright {

class MemberRuns {
 public:
  // Arguments outlive the runs. All members together may do a part of the context's work.
  MemberRuns(const Problem& problem, const PlanOptions& options, const SearchContext& context,
             Incumbents& incumbents);

  // Run those that have not run yet, each within its effort, and offer their answers to the
  // incumbents; the counts of `outcome` grow.
  absl::Status RunQuick(Outcome& outcome);
  absl::Status RunAll(Outcome& outcome);

  // The strategies found so far.
  const std::vector<Strategy>& found() const { return found_; }
  // The answer of one that found nothing: a proof of infeasibility before any other.
  const Outcome& none() const { return none_; }

 private:
  absl::Status Run(const AutoMember& member, Outcome& outcome);
  absl::Status RunOnLess(const AutoMember& member, const SearchContext& whole, Bytes peak);

  const Problem& problem_;
  const PlanOptions& options_;
  const SearchContext& context_;
  Incumbents& incumbents_;
  const std::vector<AutoMember> members_;
  const SearchContext work_;
  size_t next_ = 0;
  bool told_ = false;  // The very first plan.
  std::vector<Strategy> found_;
  Outcome none_;
};

}  // namespace stagewright
