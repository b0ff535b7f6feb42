// How running jobs come to more devices when some become free: after those that wait, one job at a
// time, if it pays (planner_service/growth). The search and the change are those of a plan that is
// made anew (replanning.h, changeover.h); JobLife's part is in job_growth.cc, too.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "planner_service/records/job_records.h"

namespace stagewright {

// As many devices as the job may have, where so many are free besides those that it has.
int64_t GrowsTo(const Job& job, int64_t free);

// A plan for more devices is not sought any more.
void StopSeeking(JobRecord& record);

// The job goes on with the devices of the changeover instead of its own.
void NoteGrown(JobRecords& records, JobRecord& record, const Changeover& next, absl::Time now);

// It does not, and why; tried again after a while.
void NoteNotGrown(JobRecords& records, JobRecord& record, const std::string& why, absl::Time now);

}  // namespace stagewright
