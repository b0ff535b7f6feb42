// Lists of jobs, those that are worked on among those that have ended.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "planner_service/jobs/job.h"
#include "planner_service/records/ended_jobs.h"
#include "planner_service/records/job_records.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

// A line of a list, of which the rest is read without the lock if the job has ended.
struct JobRow {
  std::optional<Job> live;
  EndedJob ended;
};

// Live and ended jobs below `before` that are asked for, newest first, until `take` is false.
// O(live jobs + ended jobs of the groups asked for), as far as it is taken.
void VisitAskedFor(const JobRecords& records, int64_t before, const v1::ListJobsRequest& request,
                   const std::function<bool(int64_t, JobRow)>& take);

// What is known of a job whose entry cannot be read now.
v1::Job Unread(const EndedJob& ended, const absl::Status& why);

}  // namespace stagewright
