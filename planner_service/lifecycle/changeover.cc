#include "planner_service/lifecycle/changeover.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "planner_service/lifecycle/measurements.h"
#include "planner_service/runs/worker_messages.h"

namespace stagewright {
namespace {

constexpr int kMostTries = 5;
constexpr absl::Duration kTryToLeaveAgain = absl::Seconds(10);

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

void LeaveDraining(JobRecords& records, JobRecord& record, absl::Time now) {
  Job& job = record.job;
  const bool can_stop = job.state == JobState::kRunning && !job.request->asynchronous() &&
                        !record.changeover.has_value() &&
                        record.run->newest_step() > record.run->first_step();
  if (!can_stop || now < record.leave_after) return;
  std::vector<std::string> leaves;
  for (const auto& [worker, devices] : record.run->workers()) {
    if (records.registry().Draining(worker)) leaves.push_back(worker);
  }
  if (leaves.empty()) return;
  record.changeover.emplace().leaves = absl::StrJoin(leaves, ", ");
  if (!Hold(records, record)) return record.changeover.reset();
  job.message = absl::StrCat("saves its state after step ", record.run->checkpoints().hold(),
                             ", to leave ", record.changeover->leaves);
  records.AnnounceChange(job);
}

bool ChangesAfter(JobRecord& record, int64_t step) {
  return record.changeover.has_value() && step == record.run->checkpoints().hold();
}

void FailHold(JobRecords& records, JobRecord& record, bool again, const std::string& why) {
  record.run->checkpoints().EndHold();
  records.SendToAll(record, GoOnMessage(record.job));
  if (again && record.changeover->tries++ < kMostTries && Hold(records, record)) return;
  const bool leaves = !record.changeover->leaves.empty();
  record.leave_after = absl::Now() + kTryToLeaveAgain;
  record.job.Warn(leaves ? absl::StrCat("it could not leave ", record.changeover->leaves, ": ", why)
                         : absl::StrCat("it keeps its plan: ", why));
  if (leaves) record.job.message.clear();
  record.changeover.reset();
  records.AnnounceChange(record.job);
}

void Adopt(JobRecords& records, JobRecord& record, PlannedJob plan) {
  Job& job = record.job;
  ForgetMeasurement(record);
  record.trace.Clear();
  record.trace.mutable_predicted()->Swap(&plan.timeline);
  for (const TimedOperator& expected : plan.operators)
    *record.trace.add_predicted_operators() = ToProto(expected);
  for (const std::string& device : job.devices) record.trace.add_devices(device);
  // For a planner after this one. A job that cannot be measured then runs all the same.
  records.store().WriteTrace(job, record.trace).IgnoreError();
  record.evaluations = std::move(plan.evaluations);
  job.plan = std::move(plan.best);
  job.planned_graph = plan.graph != nullptr ? std::move(plan.graph) : job.graph;
  if (plan.sequential != nullptr) job.sequential_plan = std::move(plan.sequential);
  job.working_devices = plan.working_devices;
  for (const std::string& warning : plan.warnings) job.Warn(warning);
  job.metrics.predicted_step_time = plan.step_time;
  job.metrics.memory = std::move(plan.memory);
}

}  // namespace stagewright
