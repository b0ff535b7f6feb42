// Where jobs write: no two of them to one place at the same time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "planner_service/records/job_record.h"

namespace stagewright {

// FAILED_PRECONDITION, with the reason OUTPUT_IN_USE, names the unfinished job that has the path,
// however it is written. `live`: JobRecords::live(). O(those).
absl::Status CheckOutput(const std::map<int64_t, JobRecord>& live, const std::string& path);

// Names (RunName) of the jobs that may have files where they write, but for the job of that number:
// by them workers know another's directory, which a link may give a second name. O(`live`).
std::vector<std::string> UnfinishedRuns(const std::map<int64_t, JobRecord>& live, int64_t but_for);

}  // namespace stagewright
