#include "planner_service/lifecycle/path_checks.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "planner_service/lifecycle/job_life.h"
#include "planner_service/lifecycle/restart_rules.h"

namespace stagewright {

std::vector<std::string> WorkersToAsk(const Job& job) {
  if (job.generation > 0) return {};
  std::set<std::string> workers;
  for (const std::string& device : job.devices) workers.insert(device.substr(0, device.find('/')));
  return {workers.begin(), workers.end()};
}

std::optional<std::string> PathsRefusal(const Job& job, const std::string& worker,
                                        const v1::PathsChecked& message) {
  const bool waits = job.state == JobState::kPlanning || job.state == JobState::kWaitingForDevices;
  if (message.code() == 0 || !waits || message.generation() != job.generation) return std::nullopt;
  const std::vector<std::string> asked = WorkersToAsk(job);
  if (std::find(asked.begin(), asked.end(), worker) == asked.end()) return std::nullopt;
  // A file system or store that does not answer now may do so when the job starts.
  const auto code = static_cast<absl::StatusCode>(message.code());
  if (MayBeLoss(code) && RestartsAtAll(job)) return std::nullopt;
  return absl::StrCat("worker ", worker, ": ", message.message());
}

void JobLife::OnPathsChecked(const std::string& worker, const v1::PathsChecked& message) {
  JobRecord* record = records_.Find(JobNumber(message.job()));
  if (suspended_ || record == nullptr) return;
  const std::optional<std::string> refusal = PathsRefusal(record->job, worker, message);
  if (!refusal.has_value()) return;
  record->job.failure_code = message.code();
  End(*record, JobState::kFailed, *refusal);
}

}  // namespace stagewright
