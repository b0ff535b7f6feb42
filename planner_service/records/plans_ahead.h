// Plans of a running job for what may be left of its devices, made before it loses any: a job that
// starts again then has its plan at once. Which losses are looked at, and when, is for lifecycle to
// say (planning_ahead.h).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/cost/measured/operator_profile.h"
#include "common/topology/cluster.h"
#include "planner_service/jobs/job_plan.h"
#include "planner_service/planner/search_context.h"

namespace stagewright {

// What a job's plan is made from besides the job. Equal ones have equal plans, but for what cluster
// and devices are called. What was measured in jobs does not count: each job leaves some behind.
class PlanSource {
 public:
  PlanSource(const Cluster& cluster, const OperatorProfile& profile);
  friend bool operator==(const PlanSource&, const PlanSource&) = default;

 private:
  std::string digest_;
};

class PlansAhead {
 public:
  // Beyond these no more are made: devices that are alike share a plan.
  static constexpr size_t kMost = 8;

  // The plan that is made from this; null: none is known.
  std::shared_ptr<const JobPlan> Find(const PlanSource& source) const;
  // `plan` may be null: there is none, which need not be found out again.
  void Keep(PlanSource source, std::shared_ptr<const JobPlan> plan);
  // Whether a plan is to be made from this, of which it is known now that it may be needed.
  bool Lacks(const PlanSource& source);
  // All that may be needed was asked for: what was not is dropped.
  void EndRound();

  // Which loss was looked at last, in the present round; empty: none.
  std::string looked_at;
  absl::Time look_again = absl::InfinitePast();
  std::shared_ptr<SearchContext> search;  // Set while a plan is sought.

 private:
  struct Kept {
    PlanSource source;
    std::shared_ptr<const JobPlan> plan;
    bool needed = true;  // In the present round.
  };

  std::vector<Kept> kept_;
};

}  // namespace stagewright
