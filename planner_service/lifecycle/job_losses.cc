#include "planner_service/lifecycle/job_losses.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error_details.h"
#include "common/clock/steady_now.h"
#include "planner_service/lifecycle/changeover.h"
#include "planner_service/lifecycle/job_life.h"
#include "planner_service/lifecycle/restart_rules.h"
#include "planner_service/lifecycle/run_reports.h"
#include "planner_service/runs/worker_messages.h"

namespace stagewright {
namespace {

// The run's workers that one of its workers did not reach.
std::set<std::string> Unreached(const Run& run, const v1::Failed& message) {
  const auto& devices = message.unreached_devices();
  std::set<std::string> unreached;
  for (const auto& [worker, own] : run.workers()) {
    if (std::find_first_of(own.begin(), own.end(), devices.begin(), devices.end()) != own.end())
      unreached.insert(worker);
  }
  return unreached;
}

// "b/cpu0 until 2026-11-28T17:20:00Z"
std::string UntilText(const std::string& device, absl::Time until) {
  return absl::StrCat(device, " until ",
                      absl::FormatTime(absl::RFC3339_sec, OnTheClock(until), absl::UTCTimeZone()));
}

}  // namespace

std::string CauseOf(const Run& run) {
  if (!run.lost().empty()) return absl::StrCat("loss of worker ", absl::StrJoin(run.lost(), ", "));
  const std::vector<std::string> outsiders = run.peer_gaps.Outsiders(run.workers(), run.lost());
  if (outsiders.empty()) return std::string(run.given_up.message());
  return absl::StrCat("no path between peers and worker ", absl::StrJoin(outsiders, ", "));
}

void JobLife::FailOrRestart(JobRecord& record, const std::string& cause,
                            const std::string& message) {
  Job& job = record.job;
  const Run& run = *record.run;
  const auto blame = [&](const std::string& worker, int enough) {
    std::vector<std::string> kept;
    for (const int32_t index : run.workers().at(worker)) {
      const std::string& device = job.devices[static_cast<size_t>(index)];
      const absl::Time until = registry_->NoteFailure(device, message, Now(), enough);
      if (until > Now()) kept.push_back(UntilText(device, until));
    }
    if (kept.empty()) return;
    records_.Note(job, EventKind::kQuarantined,
                  absl::StrCat("in quarantine: ", absl::StrJoin(kept, ", "), ": ", message),
                  worker);
  };
  for (const std::string& worker : run.lost()) blame(worker, kFailuresToQuarantine);
  for (const std::string& worker : run.peer_gaps.Outsiders(run.workers(), run.lost()))
    blame(worker, kGapsToQuarantine);
  const bool of_storage = run.lost().empty() && IsOfStorage(run.given_up);
  // Such a run has cost nothing: whoever waits for a disk needs no restart for each look at it.
  const bool counts = !of_storage || job.state != JobState::kStarting;
  const bool may_restart = counts ? MayRestart(job) : RestartsAtAll(job);
  record.setbacks.Note(cause, record.run->newest_step(), of_storage);
  if (!may_restart || record.setbacks.Loops()) {
    if (record.run->lost().empty()) job.failure_code = record.run->given_up.raw_code();
    const std::string loops = absl::StrCat("; not started again: ", cause, " ", kMostAlike,
                                           " times in a row without a step of progress");
    return End(record, JobState::kFailed, absl::StrCat(message, may_restart ? loops : ""));
  }
  SaveManifest(records_, record);
  const v1::ConnectResponse abort = AbortMessage(job);
  if (counts) ++job.restarts;
  const std::string which =
      counts ? absl::StrCat("restart ", job.restarts, " of ", job.request->max_restarts)
             : std::string("no restart is counted");
  records_.Note(job, EventKind::kRestarted, absl::StrCat(which, ": ", message));
  job.resume_from.clear();
  record.least_devices = 0;
  const absl::Duration wait = record.setbacks.BackOff();
  record.start_after = Now() + wait;
  PutBack(
      record, abort,
      absl::StrCat(
          message, "; starting again from the last checkpoint",
          wait == absl::ZeroDuration() ? "" : absl::StrCat(" in ", absl::FormatDuration(wait))));
}

void JobLife::PutBack(JobRecord& record, const v1::ConnectResponse& abort,
                      const std::string& message) {
  record.changeover.reset();
  record.job.stragglers.clear();
  record.put_back = message;
  record.settled_by = Now() + kRunsEndWithin;
  records_.Transition(record, JobState::kPending, message);
  EndRun(record, abort);
  Advance();
}

bool JobLife::Resume(JobRecord& record, const std::string& worker) {
  Run& run = *record.run;
  if (!run.lost().contains(worker)) return false;
  std::vector<std::string> devices;
  for (const int32_t index : run.workers().at(worker))
    devices.push_back(record.job.devices[static_cast<size_t>(index)]);
  if (!registry_->Regain(record.job.name(), devices).ok()) return false;
  run.Regain(worker);
  records_.Note(record.job, EventKind::kWorkerBack, "it carries on with its part", worker);
  TellAgain(records_, record, worker);
  // It may wait for a change of plans that a planner before this one began. Whether an asynchronous
  // plan agreed to a step for that is known when all are back.
  const bool all_together = IsAsynchronous(record.job) && run.recovered;
  if (!record.changeover.has_value() && !all_together)
    records_.Send(record, worker, GoOnMessage(record.job));
  // What it said of its share may be lost, and all would wait for it.
  if (record.changeover.has_value())
    FailHold(records_, record, /*again=*/true, absl::StrCat("worker ", worker, " was lost"));
  return true;
}

void JobLife::AfterReturn(JobRecord& record) {
  const Run& run = *record.run;
  if (run.lost() != run.gone()) {
    if (!run.gone().empty() && !MayRestart(record.job))
      End(record, JobState::kFailed, std::string(record.job.message));
    return;  // Others are still waited for.
  }
  if (run.lost().empty() && run.given_up.ok()) {
    records_.Transition(record, JobState::kRunning, "");
    // A step that is offered just now, to change the plan, must not be withdrawn.
    if (!IsAsynchronous(record.job) || !run.recovered || record.changeover.has_value()) return;
    if (run.settled_flush > 0)
      records_.SendToAll(record, CheckpointMessage(record.job, run.settled_flush));
    return records_.SendToAll(record, GoOnMessage(record.job));
  }
  FailOrRestart(record, CauseOf(run), std::string(record.job.message));
}

void JobLife::OnLost(const std::string& worker, const std::string& why, bool silent) {
  if (suspended_) return;
  for (auto& [number, record] : records_.live()) {
    Job& job = record.job;
    if (!OnWorkers(job.state) || !record.run->HasWorker(worker) ||
        record.run->lost().contains(worker))
      continue;
    records_.Note(job, EventKind::kWorkerLost, why, worker);
    const bool starting = job.state == JobState::kStarting;
    // A loss before it that is not made good is as much the cause.
    const std::string before =
        record.run->lost().empty() ? std::string() : absl::StrCat(job.message, "; ");
    const std::string message =
        starting ? absl::StrCat("worker ", worker, " was lost while starting: ", why)
                 : absl::StrCat(before, "worker ", worker, " was lost after step ",
                                job.metrics.step, ": ", why);
    const bool nobody_tells = !silent && record.run->workers().size() == 1 && MayRestart(job);
    const absl::Duration wait = nobody_tells
                                    ? std::min(kConnectsAgainWithin, options_.worker_timeout)
                                    : options_.worker_timeout;
    // Others that a planner before this one knew have their time to come back, too.
    record.run->Lose(worker, record.run->lost().empty()
                                 ? Now() + wait
                                 : std::max(Now() + wait, record.workers_back_by));
    if (starting || (!record.run->given_up.ok() && !record.run->recovered)) {
      FailOrRestart(record, CauseOf(*record.run), message);
      continue;
    }
    // It may run on and come back. If it died, the devices it exchanged messages with say so before
    // long.
    records_.Transition(record, JobState::kRecovering, message);
  }
}

void JobLife::OnLate(JobRecord& record) {
  const Run& run = *record.run;
  const std::string message = record.job.message;
  if (!run.given_up.ok() && run.lost().empty()) {  // No worker was lost after all.
    const std::string cause = CauseOf(run);
    const std::string told(run.given_up.message());
    return FailOrRestart(record, cause, cause == told ? told : absl::StrCat(told, "; ", cause));
  }
  if (record.job.state == JobState::kStarting) {
    const std::string silent =
        absl::StrCat("no answer from ", absl::StrJoin(run.Unanswered(), ", "));
    return FailOrRestart(record, silent, absl::StrCat("not started in time: ", silent));
  }
  FailOrRestart(record, CauseOf(run),
                absl::StrCat(message, "; did not come back: ", absl::StrJoin(run.lost(), ", ")));
}

void JobLife::OnFailed(JobRecord& record, const std::string& worker, const v1::Failed& message) {
  if (suspended_) return;  // The next planner is told again.
  Job& job = record.job;
  Run& run = *record.run;
  const bool recovering = job.state == JobState::kRecovering;
  const bool may_restart = MayRestart(job);
  const std::string text = absl::StrCat(recovering ? absl::StrCat(job.message, "; ") : "",
                                        "worker ", worker, ": ", message.message());
  run.peer_gaps.NoteGivenUp(worker, Unreached(run, message));
  if (!run.given_up.ok()) return;  // The first one tells the cause, those after it echo it.
  // What the others say of a lost worker is an echo of its loss. After a restart of the planner,
  // all are lost that have not come back yet: they are waited for.
  if (recovering && !run.lost().empty() && !(run.recovered && may_restart))
    return FailOrRestart(record, CauseOf(run), text);
  const auto code = message.code() == 0 ? absl::StatusCode::kUnknown
                                        : static_cast<absl::StatusCode>(message.code());
  if (recovering ? !may_restart : !MayBeLoss(code)) {
    job.failure_code = static_cast<int32_t>(code);
    return End(record, JobState::kFailed, text);
  }
  // Another device's end is often told by those that it exchanged messages with first: the loss is
  // waited for, since it names the worker.
  records_.Transition(record, job.state == JobState::kStarting ? job.state : JobState::kRecovering,
                      text);
  run.given_up =
      message.storage() ? WithStorageFault(absl::Status(code, text)) : absl::Status(code, text);
  if (!recovering) run.deadline = Now() + kLossIsKnownWithin;
}

}  // namespace stagewright
