#include "planner_service/lifecycle/changeover.h"

#include "absl/strings/str_cat.h"
#include "planner_service/runs/worker_messages.h"

namespace stagewright {
namespace {

constexpr int kMostTries = 5;

}  // namespace

bool Hold(JobRecords& records, JobRecord& record) {
  Run& run = *record.run;
  const std::optional<CheckpointPolicy>& policy = record.job.request->training.checkpoints;
  const auto due =
      run.checkpoints().AnnounceHold(run.newest_step(), record.job.metrics.recent_step_time,
                                     run.total_steps(), policy.has_value() ? &*policy : nullptr);
  if (!due.has_value()) return false;
  records.SendToAll(record, CheckpointMessage(record.job, *due, /*hold=*/true));
  return true;
}

bool ChangesAfter(JobRecord& record, int64_t step) {
  return record.changeover.has_value() && step == record.run->checkpoints().hold();
}

void FailHold(JobRecords& records, JobRecord& record, bool again, const std::string& why) {
  record.run->checkpoints().EndHold();
  records.SendToAll(record, GoOnMessage(record.job));
  if (again && record.changeover->tries++ < kMostTries && Hold(records, record)) return;
  record.changeover.reset();
  record.job.Warn(absl::StrCat("it keeps its plan: ", why));
  records.AnnounceChange(record.job);
}

}  // namespace stagewright
