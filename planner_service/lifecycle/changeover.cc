#include "planner_service/lifecycle/changeover.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "planner_service/lifecycle/job_growth.h"
#include "planner_service/lifecycle/measurements.h"
#include "planner_service/runs/worker_messages.h"

namespace stagewright {
namespace {

constexpr int kMostTries = 5;
constexpr absl::Duration kTryToLeaveAgain = absl::Seconds(10);
// Workers answer an offer at once.
constexpr absl::Duration kAgreeWithin = absl::Seconds(10);
// The devices of an asynchronous plan begin steps before those before are done everywhere.
constexpr int64_t kRunsAhead = 3;

}  // namespace

bool Hold(JobRecords& records, JobRecord& record) {
  Run& run = *record.run;
  const std::optional<CheckpointPolicy>& policy = record.job.request->training.checkpoints;
  const bool asynchronous = IsAsynchronous(record.job);
  const int64_t known = asynchronous ? std::max(run.newest_step(), run.settled_flush) + kRunsAhead
                                     : run.newest_step();
  const auto due =
      run.checkpoints().AnnounceHold(known, record.job.metrics.recent_step_time, run.total_steps(),
                                     policy.has_value() ? &*policy : nullptr);
  if (!due.has_value()) return false;
  if (asynchronous) {
    record.changeover->agreed.clear();
    record.changeover->agreed_by = SteadyNow() + kAgreeWithin;
  }
  records.SendToAll(record, asynchronous ? OfferMessage(record.job, *due)
                                         : CheckpointMessage(record.job, *due, /*hold=*/true));
  return true;
}

void NoteAgreement(JobRecords& records, JobRecord& record, const std::string& worker,
                   const v1::CheckpointAgreed& message) {
  if (!ChangesAfter(record, message.step()) || !AwaitsAgreement(record)) return;
  if (message.late()) {
    record.run->checkpoints().NoteLate();
    return FailHold(
        records, record, /*again=*/true,
        absl::StrCat("worker ", worker, " was beyond step ", message.step(), " already"));
  }
  record.changeover->agreed.insert(worker);
  if (record.changeover->agreed.size() < record.run->workers().size()) return;
  record.changeover->agreed_by = absl::InfiniteFuture();
  record.run->settled_flush = message.step();
  records.SendToAll(record, CheckpointMessage(record.job, message.step(), /*hold=*/true));
}

bool AwaitsAgreement(const JobRecord& record) {
  return record.changeover.has_value() && record.changeover->agreed_by != absl::InfiniteFuture();
}

void EndLateOffer(JobRecords& records, JobRecord& record, absl::Time now) {
  if (!AwaitsAgreement(record) || now < record.changeover->agreed_by) return;
  FailHold(records, record, /*again=*/false, "not all workers have agreed to a step in time");
}

bool IsAsynchronous(const Job& job) {
  return job.plan != nullptr && job.plan->program().asynchronous();
}

void LeaveDraining(JobRecords& records, JobRecord& record, absl::Time now) {
  Job& job = record.job;
  const bool changes_plan = record.changeover.has_value() && record.changeover->leaves.empty() &&
                            !record.changeover->room_for.has_value();
  if (!CanStop(record, now) && !(changes_plan && job.state == JobState::kRunning)) return;
  std::vector<std::string> leaves;
  for (const auto& [worker, devices] : record.run->workers()) {
    if (records.registry().Draining(worker)) leaves.push_back(worker);
  }
  if (leaves.empty()) return;
  // One that is about to stop for a better plan is planned for what is left instead.
  if (!changes_plan) record.changeover.emplace();
  record.changeover->leaves = absl::StrJoin(leaves, ", ");
  record.changeover->grows.clear();
  if (!changes_plan && !Hold(records, record)) return record.changeover.reset();
  job.message = absl::StrCat("saves its state after step ", record.run->checkpoints().hold(),
                             ", to leave ", record.changeover->leaves);
  records.AnnounceChange(job);
}

bool CanStop(const JobRecord& record, absl::Time now) {
  const Job& job = record.job;
  return job.state == JobState::kRunning && !record.changeover.has_value() &&
         record.run->newest_step() > record.run->first_step() && now >= record.leave_after;
}

bool MakeRoom(JobRecords& records, JobRecord& record, int64_t room_for,
              const std::string& room_text, absl::Time now) {
  Changeover& changeover = record.changeover.emplace();
  changeover.room_for = room_for;
  changeover.room_text = room_text;
  if (!Hold(records, record)) {
    record.leave_after = now + kTryToLeaveAgain;
    record.changeover.reset();
    return false;
  }
  record.job.message = absl::StrCat("saves its state after step ", record.run->checkpoints().hold(),
                                    ", to make room for ", room_text);
  records.AnnounceChange(record.job);
  return true;
}

void KeepRunning(JobRecords& records, JobRecord& record) {
  record.run->checkpoints().EndHold();
  records.SendToAll(record, GoOnMessage(record.job));
  record.changeover.reset();
  if (record.job.state == JobState::kRunning) record.job.message.clear();
  records.AnnounceChange(record.job);
}

bool ChangesAfter(JobRecord& record, int64_t step) {
  return record.changeover.has_value() && step == record.run->checkpoints().hold();
}

void FailHold(JobRecords& records, JobRecord& record, bool again, const std::string& why) {
  record.run->checkpoints().EndHold();
  records.SendToAll(record, GoOnMessage(record.job));
  if (again && record.changeover->tries++ < kMostTries && Hold(records, record)) return;
  const bool leaves = !record.changeover->leaves.empty();
  const bool makes_room = record.changeover->room_for.has_value();
  record.leave_after = SteadyNow() + kTryToLeaveAgain;
  if (leaves) {
    record.job.Warn(absl::StrCat("it could not leave ", record.changeover->leaves, ": ", why));
  } else if (makes_room) {
    record.job.Warn(
        absl::StrCat("it could not make room for ", record.changeover->room_text, ": ", why));
  } else if (!record.changeover->grows.empty()) {
    NoteNotGrown(records, record, why, SteadyNow());
  } else {
    record.job.Warn(absl::StrCat("it keeps its plan: ", why));
  }
  if ((leaves || makes_room) && record.job.state == JobState::kRunning) record.job.message.clear();
  record.changeover.reset();
  records.AnnounceChange(record.job);
}

void Adopt(JobRecords& records, JobRecord& record, PlannedJob plan) {
  Job& job = record.job;
  record.cluster = std::move(plan.cluster);
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
  for (const std::string& warning : plan.warnings) job.Warn(warning);
  job.metrics.predicted_step_time = plan.step_time;
  job.metrics.memory = std::move(plan.memory);
}

}  // namespace stagewright
