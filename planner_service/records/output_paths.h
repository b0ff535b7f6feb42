// Where jobs write: no two of them to one place at the same time.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/base/status.h"
#include "planner_service/records/job_records.h"

namespace stagewright {

// FAILED_PRECONDITION, with the reason OUTPUT_IN_USE, names the unfinished job that has the path,
// however it is written. O(jobs).
absl::Status CheckOutput(const std::map<int64_t, JobRecord>& records, const std::string& path);

}  // namespace stagewright
