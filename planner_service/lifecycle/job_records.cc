#include "planner_service/lifecycle/job_records.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace stagewright {
namespace {

constexpr absl::Duration kWriteEvery = absl::Seconds(5);

}  // namespace

JobRecords::JobRecords(Store* store, WorkerRegistry* registry, OnChange on_change, OnEvent on_event)
    : store_(store),
      profiles_(store),
      registry_(registry),
      on_change_(std::move(on_change)),
      on_event_(std::move(on_event)) {}

JobRecord* JobRecords::Find(int64_t job) {
  const auto it = all_.find(job);
  return it == all_.end() ? nullptr : &it->second;
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
  const bool steps = record.write_steps != absl::InfiniteFuture();
  const absl::Status status = store_.Write(job, steps ? &record.history : nullptr);
  if (!status.ok()) {
    // Nothing may be acted on that is not in the store: the job ends here, and is found in its last
    // stored state after a restart.
    job.state = JobState::kFailed;
    job.message = absl::StrCat("its state cannot be stored: ", status.message());
    Note(job, EventKind::kStoreFailed, job.message);
  } else if (steps) {
    record.write_steps = absl::InfiniteFuture();
    record.write_job = false;
  }
  Announce(job);
}

void JobRecords::Announce(const Job& job) {
  if (on_change_) on_change_(job);
}

void JobRecords::Report(const Event& event) const {
  LogEvent(event);
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

void JobRecords::WriteStepsSoon(JobRecord& record) {
  record.write_steps = std::min(record.write_steps, absl::Now() + kWriteEvery);
}

void JobRecords::WriteSteps(JobRecord& record) {
  if (record.write_steps == absl::InfiniteFuture()) return;
  const absl::Status status = record.write_job ? store_.Write(record.job, &record.history)
                                               : store_.WriteSteps(record.job, record.history);
  const bool written = status.ok();
  record.write_job = record.write_job && !written;
  record.write_steps = written ? absl::InfiniteFuture() : absl::Now() + kWriteEvery;
}

void JobRecords::SendToAll(const JobRecord& record, const v1::ConnectResponse& message) {
  for (const auto& [worker, devices] : record.run->workers()) registry_->Send(worker, message);
}

void JobRecords::SendToFirst(const JobRecord& record, const v1::ConnectResponse& message) {
  registry_->Send(record.run->first_worker(), message);
}

}  // namespace stagewright
