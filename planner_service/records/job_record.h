// A job that the planner works on, with what is only in memory about it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/wire/step_history.h"
#include "planner_service/growth/growth_pauses.h"
#include "planner_service/jobs/job.h"
#include "planner_service/planner/planner.h"
#include "planner_service/records/changeover_state.h"
#include "planner_service/records/job_log.h"
#include "planner_service/records/plans_ahead.h"
#include "planner_service/runs/run.h"
#include "planner_service/runs/setbacks.h"
#include "stagewright/v1/planner_service.pb.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// What the actions of a job's steps took, by its present plan.
struct Measured {
  int64_t step = 0;   // Steps done when the newest of them was.
  int32_t steps = 0;  // How many were measured.
  std::vector<ActionTimes> actions;
  std::vector<TimedOperator> operators;  // None: not timed yet.
};

// A search for more devices that found nothing, by what it depended on.
struct VainGrowth {
  int64_t generation = 0;  // The plan is that of the generation.
  Nanos step_time = 0;     // As measured.
  v1::PlanBasis basis;     // Its devices; operators are the job's.
};

// A checkpoint of an earlier run whose shares are all written, and whose manifest may not be.
struct UnwrittenCheckpoint {
  v1::WriteManifest manifest;
  std::string graph_sha256;  // What its stages were of.
};

struct JobRecord {
  Job job;
  std::optional<Job> told;             // As it was told last, unless it has ended.
  std::optional<absl::Time> unstored;  // Since when `job` is further on than the store.
  // What workers are to be told once the store has the job.
  std::vector<std::pair<std::string, v1::ConnectResponse>> outbox;
  std::shared_ptr<SearchContext> planning;  // Set while planning.
  PlansAhead ahead;
  v1::Cluster cluster;                   // For workers, from the last planning.
  std::vector<v1::Program> evaluations;  // PlannedJob::evaluations of the last planning.
  std::optional<Run> run;                // While workers have devices for the job.
  StepHistory history;                   // The whole job's; once it has ended, in the store only.
  absl::Time write_steps = absl::InfiniteFuture();  // When the store is to have it.
  bool write_job = false;  // The job is written with it: more than its steps has changed.
  v1::GetJobTraceResponse trace;
  std::optional<Measured> measured;
  bool asked_operators = false;  // Workers were asked to time them, in the present run.
  std::shared_ptr<SearchContext> replanning;      // Set while a plan for the running job is sought.
  std::optional<Changeover> changeover;           // From the search until the job has the plan.
  absl::Time leave_after = absl::InfinitePast();  // It is not asked to leave devices before.
  bool room_made = false;                         // Jobs were or are stopped so that it can start.
  Setbacks setbacks;
  GrowthPauses growth_pauses;
  std::optional<VainGrowth> vain_growth;
  bool lacks_room = false;    // Job::growth says that there are no devices to grow onto.
  bool seeks_growth = false;  // `replanning` is for more devices, not for somebody who asked.
  std::optional<absl::Duration> start_took;  // From its preparation to steps, of the present run.
  std::string put_back;                      // Why its last run ended, while it waits to go on.
  absl::Time start_after = absl::InfinitePast();      // A job that starts again waits until then.
  absl::Time workers_back_by = absl::InfinitePast();  // If the planner was started again.
  absl::Time settled_by = absl::InfinitePast();  // It waits for its runs to end at most until then.
  size_t least_devices = 0;                      // It needs, as far as is known; 0: not known.
  JobLog log;                                    // Since this planner started.
  bool write_log = false;                        // It has more than the store.
  std::optional<UnwrittenCheckpoint> unwritten;  // Until a run has resumed.
};

// The job as others may see it.
const Job& ShownJob(const JobRecord& record);

// For a job that has ended and is stored: what is large of it stays in the store alone.
void ForgetParts(JobRecord& record);
// Nothing is to be done about it any more, and the store has all of it.
bool IsAtRest(const JobRecord& record);

}  // namespace stagewright
