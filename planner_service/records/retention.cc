#include "planner_service/records/retention.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/log/log.h"
#include "planner_service/records/told_of.h"

namespace stagewright {

std::vector<int64_t> Expired(const std::map<int64_t, JobRecord>& records, const Retention& keep,
                             absl::Time now) {
  const bool all =
      keep.age == absl::InfiniteDuration() && keep.count == std::numeric_limits<size_t>::max();
  if (all) return {};
  std::vector<std::pair<absl::Time, int64_t>> ended;
  for (const auto& [number, record] : records) {
    const bool over = IsTerminal(record.job.state) && !record.unstored.has_value();
    if (over) ended.emplace_back(record.job.end_time, number);
  }
  std::sort(ended.rbegin(), ended.rend());
  std::vector<int64_t> expired;
  for (size_t i = ended.size(); i-- > 0;) {
    if (i >= keep.count || now - ended[i].first >= keep.age) expired.push_back(ended[i].second);
  }
  return expired;
}

absl::Status Forget(JobRecords& records, RequestBook& requests, int64_t number,
                    int64_t next_number) {
  const JobRecord& record = *records.Find(number);
  // Its workers do not know of its end.
  if (record.unstored.has_value()) return ToldOf(records.trouble());
  const Job& job = record.job;
  if (!IsTerminal(job.state)) {
    return WithResource(absl::FailedPreconditionError(absl::StrCat(
                            job.name(), " is ", JobStateName(job.state), "; cancel it first")),
                        job.name());
  }
  const std::vector<std::string> ids = requests.IdsOf(job.name());
  RETURN_IF_ERROR(ToldOf(records.store().Remove(job, ids, next_number)));
  Log(LogLevel::kInfo, "job forgotten", {{"job", job.name()}});
  requests.Forget(ids);
  records.all().erase(number);
  return absl::OkStatus();
}

}  // namespace stagewright
