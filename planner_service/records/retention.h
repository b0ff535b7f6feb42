// For how long jobs that have ended are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/jobs/request_book.h"
#include "planner_service/records/job_records.h"

namespace stagewright {

// All of them, unless it says less.
struct Retention {
  absl::Duration age = absl::InfiniteDuration();      // Since they ended.
  size_t count = std::numeric_limits<size_t>::max();  // The newest.
};

// The one of ended jobs beyond `keep` that ended first; -1 if there is none.
int64_t OldestExpired(const EndedJobs& ended, const Retention& keep, absl::Time now);

// Forgets a job with its steps, its trace and its requests, in the store, too; the next job there
// has at least `next_number`. FAILED_PRECONDITION if it has not ended. REQUIRES: the job is known.
absl::Status Forget(JobRecords& records, RequestBook& requests, int64_t job, int64_t next_number);

}  // namespace stagewright
