#include "planner_service/records/job_records.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "common/clock/steady_now.h"

namespace stagewright {
namespace {

constexpr absl::Duration kWriteEvery = absl::Seconds(5);
// Between tries to write what the store did not take.
constexpr absl::Duration kFirstPause = absl::Milliseconds(250);
constexpr absl::Duration kLongestPause = absl::Seconds(8);
// Nobody is waited for longer (JobManagerOptions).
constexpr absl::Duration kLongestWait = absl::Minutes(2);

}  // namespace

JobRecords::JobRecords(Store* store, ProfileStore* profiles, WorkerRegistry* registry,
                       OnChange on_change, OnEvent on_event)
    : store_(store),
      registry_(registry),
      on_change_(std::move(on_change)),
      on_event_(std::move(on_event)),
      profiles_(profiles) {}

void JobRecords::KeepProfile(const Job& job, OperatorProfile profile) {
  profiles_.Keep(job.name(), std::move(profile));
}

JobState JobRecords::StateOf(int64_t job) const {
  const auto live = live_.find(job);
  return live == live_.end() ? ended_.Find(job)->state : live->second.job.state;
}

JobRecord* JobRecords::Find(int64_t job) {
  const auto it = live_.find(job);
  return it == live_.end() ? nullptr : &it->second;
}

bool JobRecords::Retire(absl::Time now) {
  bool any = false;
  for (auto it = live_.begin(); it != live_.end();) {
    JobRecord& record = it->second;
    // Workers that end its runs may have more to say of it.
    const bool ends =
        now < record.job.end_time + kRunsEndWithin && !registry_->Ending(record.job.name()).empty();
    if (!IsAtRest(record) || ends) {
      ++it;
      continue;
    }
    store_.Rest(it->first);
    ended_.Add(SummaryOf(it->second.job));
    it = live_.erase(it);
    any = true;
  }
  return any;
}

JobRecord* JobRecords::FindRun(const std::string& worker, const std::string& name,
                               int64_t generation) {
  JobRecord* record = Find(JobNumber(name));
  const bool takes_part = record != nullptr && !IsTerminal(record->job.state) &&
                          record->run.has_value() && record->job.generation == generation &&
                          record->run->HasWorker(worker);
  return takes_part ? record : nullptr;
}

void JobRecords::Transition(JobRecord& record, JobState state, const std::string& message) {
  Job& job = record.job;
  job.state = state;
  job.message = message;
  ++job.version;
  if (record.run.has_value()) record.run->deadline = absl::InfiniteFuture();
  if (IsTerminal(state)) job.end_time = absl::Now();
  Note(job, EventKind::kState, message);
  // In their order: a transition does not overtake another one that waits.
  const absl::Status status = record.unstored.has_value() ? trouble_ : WriteJob(record);
  if (!status.ok()) {
    if (trouble_.ok()) Note(job, EventKind::kStoreFailed, std::string(status.message()));
    return Hold(record, status);
  }
  Announce(job);
}

absl::Status JobRecords::WriteJob(JobRecord& record) {
  const bool steps = record.write_steps != absl::InfiniteFuture();
  const bool log = IsTerminal(record.job.state);
  const v1::ListJobLogsResponse lines = log ? record.log.ToProto() : v1::ListJobLogsResponse();
  const auto write = [&](const v1::ListJobLogsResponse* with) {
    return store_.Write(record.job, steps ? &record.history : nullptr, /*request_id=*/"",
                        /*digest=*/"", with);
  };
  absl::Status written = write(log ? &lines : nullptr);
  // Room that only the log lacks must not keep a job from ending.
  if (log && !lines.lines().empty() &&
      (absl::IsResourceExhausted(written) || absl::IsInvalidArgument(written)))
    written = write(nullptr);
  RETURN_IF_ERROR(written);
  if (log) record.write_log = false;
  if (steps) {
    record.write_steps = absl::InfiniteFuture();
    record.write_job = false;
  }
  return absl::OkStatus();
}

void JobRecords::NoteRefused(const absl::Status& why) {
  if (absl::IsInvalidArgument(why)) return;  // It is the job that is too large.
  TryAgainSoon();
  refused_ = why;
}

void JobRecords::TryAgainSoon() {
  if (!refusal().ok()) return;
  pause_ = kFirstPause;
  retry_ = SteadyNow() + pause_;
}

void JobRecords::Hold(JobRecord& record, const absl::Status& why) {
  TryAgainSoon();
  trouble_ = why;
  if (!record.unstored.has_value()) record.unstored = SteadyNow();
}

void JobRecords::Release(JobRecord& record, absl::Time now) {
  // Nobody could answer meanwhile.
  const auto delay = [&](absl::Time& time) { time += now - *record.unstored; };
  if (record.run.has_value()) record.run->MoveDeadlines(delay);
  // Runs hear of their end only now.
  if (!record.outbox.empty()) delay(record.settled_by);
  record.unstored.reset();
  Announce(record.job);
  for (const auto& [worker, message] : record.outbox) registry_->Send(worker, message);
  record.outbox.clear();
}

void JobRecords::WriteWaiting(absl::Time now) {
  if (refusal().ok() || now < retry_) return;
  absl::Status trouble;
  for (auto& [number, record] : live_) {
    if (!record.unstored.has_value()) continue;
    const absl::Status status = WriteJob(record);
    if (status.ok()) {
      Release(record, now);
      continue;
    }
    trouble = status;
    // Another job may be small enough for what room there is; of a store that does not answer, each
    // question takes time.
    if (!absl::IsResourceExhausted(status) && !absl::IsInvalidArgument(status)) break;
  }
  trouble_ = trouble;
  if (!refused_.ok()) refused_ = trouble.ok() ? store_.TryToWrite() : trouble;
  pause_ = std::min(2 * pause_, kLongestPause);
  retry_ = now + pause_;
}

void JobRecords::Forgive(absl::Duration stood_still, absl::Time now) {
  // What was set only afterwards is not to be as far away as the planner stood still.
  const auto move = [&](absl::Time& time) {
    time = std::max(time, std::min(time + stood_still, now + kLongestWait));
  };
  for (auto& [number, record] : live_) {
    move(record.start_after);
    move(record.workers_back_by);
    if (record.changeover.has_value()) move(record.changeover->agreed_by);
    if (record.unstored.has_value()) continue;  // Release moves these.
    move(record.settled_by);
    if (record.run.has_value()) record.run->MoveDeadlines(move);
  }
}

void JobRecords::Announce(const Job& job) {
  JobRecord& record = *Find(job.number);
  if (record.unstored.has_value()) return;
  if (!IsTerminal(job.state)) record.told = job;
  if (on_change_) on_change_(job);
  if (IsTerminal(job.state)) ForgetParts(record);
}

void JobRecords::Report(const Event& event) {
  LogEvent(event);
  if (JobRecord* record = Find(JobNumber(event.job))) {
    Event shown = event;  // Who called, and from where, is for the planner's own log.
    shown.request.clear();
    shown.client.clear();
    record->log.Add(LineOf(shown), event.generation);
  }
  if (on_event_) on_event_(event);
}

void JobRecords::Note(Job& job, EventKind kind, const std::string& message,
                      const std::string& worker) {
  Event event = job.EventOf(kind, message, worker);
  Report(event);
  Append(std::move(event), kMostJobEvents, kFirstJobEvents, job.events);
}

void JobRecords::AnnounceChange(Job& job) {
  ++job.version;
  Announce(job);
}

absl::Status JobRecords::ReadSteps(JobRecord& record) const {
  if (record.job.generation == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(record.history, store_.ReadSteps(record.job.number));
  return absl::OkStatus();
}

void JobRecords::WriteStepsSoon(JobRecord& record) {
  record.write_steps = std::min(record.write_steps, SteadyNow() + kWriteEvery);
}

void JobRecords::WriteSteps(JobRecord& record) {
  if (record.write_steps == absl::InfiniteFuture()) return;
  const absl::Status status = record.write_job ? store_.Write(record.job, &record.history)
                                               : store_.WriteSteps(record.job, record.history);
  const bool written = status.ok();
  record.write_job = record.write_job && !written;
  record.write_steps = written ? absl::InfiniteFuture() : SteadyNow() + kWriteEvery;
}

void JobRecords::WriteLogs() {
  for (auto& [number, record] : live_) {
    const bool late = IsTerminal(record.job.state) && !record.unstored.has_value();
    if (!late || !record.write_log || !trouble_.ok()) continue;
    store_.WriteLog(record.job, record.log.ToProto()).IgnoreError();  // Its job has ended well.
    record.write_log = false;
  }
}

void JobRecords::NoteLog(const std::string& worker, const v1::LogLines& message, absl::Time now) {
  JobRecord* record = Find(JobNumber(message.job()));
  if (record == nullptr) return;
  const auto ends = [&] {
    const std::vector<std::string> ending = registry_->Ending(message.job());
    return message.generation() <= record->job.generation &&
           std::find(ending.begin(), ending.end(), worker) != ending.end();
  };
  if (FindRun(worker, message.job(), message.generation()) == nullptr && !ends()) return;
  record->log.Add(worker, message, now);
  record->write_log = true;
}

void JobRecords::Send(JobRecord& record, const std::string& worker,
                      const v1::ConnectResponse& message) {
  if (record.unstored.has_value()) {
    record.outbox.emplace_back(worker, message);
  } else {
    registry_->Send(worker, message);
  }
}

void JobRecords::SendToAll(JobRecord& record, const v1::ConnectResponse& message) {
  for (const auto& [worker, devices] : record.run->workers()) Send(record, worker, message);
}

void JobRecords::SendToFirst(JobRecord& record, const v1::ConnectResponse& message) {
  Send(record, record.run->first_worker(), message);
}

}  // namespace stagewright
