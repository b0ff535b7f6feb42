// Where jobs write: no two of them to one place at the same time.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/base/status.h"
#include "planner_service/records/job_record.h"

namespace stagewright {

// FAILED_PRECONDITION, with the reason OUTPUT_IN_USE, names the unfinished job that has the path,
// however it is written. `live`: JobRecords::live(). O(those).
absl::Status CheckOutput(const std::map<int64_t, JobRecord>& live, const std::string& path);

}  // namespace stagewright
