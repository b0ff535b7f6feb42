// Plans one job: a pure function of what was asked for and the cluster.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/topology/cluster.h"
#include "planner_service/drift/action_times.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/jobs/job_request.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

struct JobPlan {
  // Which of the cluster's devices it is for, ascending: its device i is devices[i].
  std::vector<DeviceId> devices;
  JudgedPlan best;  // With its timeline.
  std::optional<JudgedPlan> sequential;
  std::vector<std::string> warnings;  // What the user should know, a sentence each.
  // Forward passes of the same stages, if there is data for it: for the samples of the graph first,
  // then for each of the request's lengths.
  std::vector<Program> evaluations;
  std::vector<TimedOperator> operators;  // ExpectedOperators of the best plan.
};

// Those that the strategy gives work, ascending. O(devices log devices).
std::vector<DeviceId> WorkingDevices(const Strategy& strategy);

// The strategy for a cluster whose device i is devices[i] of its own. REQUIRES: these are ascending
// and all that it names.
Strategy Renumbered(Strategy strategy, const std::vector<DeviceId>& devices);

// For all devices of the cluster, of which it may leave some without work. By the costs of
// `profile` where it has any of the cluster's kinds. FAILED_PRECONDITION carries the planner's
// reason where no plan exists.
absl::StatusOr<JobPlan> PlanJob(const JobRequest& job, const Cluster& cluster,
                                const OperatorProfile& profile, const std::string& default_planner,
                                SearchContext& context);

// The same plan for those devices alone that it gives work: a job holds no others. The comparison
// with a sequential plan still is of all devices. REQUIRES: `plan` is PlanJob's for the others.
absl::StatusOr<JobPlan> WithoutIdleDevices(JobPlan plan, const JobRequest& job,
                                           const Cluster& cluster, const OperatorProfile& profile);

// Both.
absl::StatusOr<JobPlan> PlanJobTightly(const JobRequest& job, const Cluster& cluster,
                                       const OperatorProfile& profile,
                                       const std::string& default_planner, SearchContext& context);

}  // namespace stagewright
