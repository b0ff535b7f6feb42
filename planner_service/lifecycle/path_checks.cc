#include "planner_service/lifecycle/path_checks.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "planner_service/lifecycle/job_life.h"
#include "planner_service/lifecycle/restart_rules.h"
#include "planner_service/records/output_paths.h"
#include "planner_service/runs/worker_messages.h"

namespace stagewright {

std::set<std::string> WorkersToAsk(const Job& job) {
  if (job.generation > 0) return {};
  std::set<std::string> workers;
  for (const std::string& device : job.devices) workers.insert(device.substr(0, device.find('/')));
  return workers;
}

void AskForPaths(const JobRecords& records, const Job& job, WorkerRegistry* registry) {
  const v1::ConnectResponse message = PathsMessage(job, UnfinishedRuns(records.live(), job.number));
  for (const std::string& worker : WorkersToAsk(job)) registry->Send(worker, message);
}

std::optional<std::string> PathsRefusal(const Job& job, const std::string& worker,
                                        const v1::PathsChecked& message) {
  const bool waits = job.state == JobState::kPlanning || job.state == JobState::kWaitingForDevices;
  if (message.code() == 0 || !waits || message.generation() != job.generation) return std::nullopt;
  if (!WorkersToAsk(job).contains(worker)) return std::nullopt;
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
