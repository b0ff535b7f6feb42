// What a planner may be told about its jobs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "planner_service/front_door/planner_table.h"
#include "planner_service/jobs/job.h"
#include "planner_service/queue/queue_state.h"
#include "planner_service/records/retention.h"

namespace stagewright {

struct JobManagerOptions {
  absl::Duration worker_timeout = absl::Seconds(10);     // A worker silent for longer is lost.
  absl::Duration starting_timeout = absl::Seconds(120);  // From Prepare, or new weights, to Start.
  absl::Duration planning_timeout = absl::Seconds(60);
  // After a restart, the workers of a running job have this long to come back. Longer than a worker
  // waits between two attempts to connect.
  absl::Duration recovery_timeout = absl::Seconds(30);
  // Whether links are being measured. A new job waits that long for better figures.
  std::function<bool()> measuring;
  absl::Duration measuring_timeout = absl::Seconds(3);
  std::string default_planner = kDefaultPlanner;
  // A job is left alone so long after a run began before it may grow (growth_pauses.h).
  absl::Duration growth_pause = absl::Seconds(10);
  QueueRules quotas;  // Devices that owners may hold at once.
  Retention keep;     // Ended jobs beyond it are forgotten.
  std::function<void(int64_t job, JobState state)> on_forgotten;
  // So many jobs were found that had ended so: on_change tells nothing of them.
  std::function<void(JobState state, int64_t jobs)> on_found_ended;
  // Called after every change of a job, in order, without locks held by the caller that matter;
  // must not call back.
  std::function<void(const Job&)> on_change;
  // The same of everything that happens to jobs and workers.
  std::function<void(const Event&)> on_event;
  // A job's search ended: its planner, "found" or the code of an error, and its time.
  std::function<void(const std::string& planner, const std::string& result, double seconds)>
      on_planned;
};

}  // namespace stagewright
