// A plan for a running job, made anew by what its steps were measured to take.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "planner_service/planner/planner.h"
#include "planner_service/records/job_records.h"
#include "planner_service/registry/worker_registry.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

// A new plan must take so much less of the present one's time by measured costs: changing over
// costs a checkpoint and a start, and predictions err.
inline constexpr double kLeastGain = 0.05;

// All that the search needs, apart from the job, which goes on meanwhile.
struct ReplanProblem {
  int64_t number = 0;
  int64_t generation = 0;
  std::string job;
  std::string account;  // The job's owner, as queue/account.h names it.
  std::shared_ptr<const JobRequest> request;
  Sealed<v1::Graph> planned_graph;
  Sealed<v1::Plan> plan;
  std::vector<std::string> devices;  // The job's own, in its plan's order, then free ones.
  std::shared_ptr<const Cluster> cluster;
  OperatorProfile profile;
  Measured measured;
  std::shared_ptr<SearchContext> context;
};

struct ReplanResult {
  v1::Plan present;                  // Judged by measured costs.
  std::optional<v1::Plan> found;     // The better one, for the same devices.
  std::optional<PlannedJob> better;  // The same for those alone that it gives work.
  std::string message;               // Why there is no better one.
};

// The problem of a job with these devices connected: its own and, up to `most` (0: all), free ones.
// FAILED_PRECONDITION if the job is not running, nothing was measured, it is being planned anew
// already or cannot be stopped between steps.
absl::StatusOr<ReplanProblem> ProblemOf(const JobRecord& record,
                                        const std::vector<RegisteredDevice>& connected, size_t most,
                                        const LinkTable& links, const OperatorProfile& known);

// FAILED_PRECONDITION that says so.
absl::Status NotRunning(int64_t job, JobState state);

// The answer to who asked.
v1::ReplanJobResponse ToProto(const ReplanProblem& problem, const ReplanResult& result,
                              const JobMetrics& metrics);

// Judges the present plan and looks for a better one. Errors as of planning.
absl::StatusOr<ReplanResult> PlanAnew(const ReplanProblem& problem,
                                      const std::string& default_planner);

}  // namespace stagewright
