#include "planner_service/records/retention.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/log/log.h"
#include "planner_service/records/told_of.h"

namespace stagewright {

int64_t OldestExpired(const EndedJobs& ended, const Retention& keep, absl::Time now) {
  const EndedJob* oldest = ended.Oldest();
  if (oldest == nullptr) return -1;
  const bool expired = ended.size() > keep.count || now - oldest->end_time >= keep.age;
  return expired ? oldest->number : -1;
}

absl::Status Forget(JobRecords& records, RequestBook& requests, int64_t number,
                    int64_t next_number) {
  if (const JobRecord* record = records.Find(number)) {
    // Its workers do not know of its end.
    if (record->unstored.has_value()) return ToldOf(records.trouble());
    const Job& job = record->job;
    if (!IsTerminal(job.state)) {
      return WithResource(absl::FailedPreconditionError(absl::StrCat(
                              job.name(), " is ", JobStateName(job.state), "; cancel it first")),
                          job.name());
    }
  }
  const std::string name = absl::StrCat("jobs/", number);
  const std::vector<std::string> ids = requests.IdsOf(name);
  RETURN_IF_ERROR(ToldOf(records.store().Remove(number, ids, next_number)));
  Log(LogLevel::kInfo, "job forgotten", {{"job", name}});
  requests.Forget(ids);
  records.live().erase(number);
  records.ended().Erase(number);
  return absl::OkStatus();
}

}  // namespace stagewright
