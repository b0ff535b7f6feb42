// Checkpoints of running jobs: when they are due by the clock, when they are complete, and how a
// job starts again from its last one after a worker was lost.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "planner_service/jobs/job_manager.h"

namespace stagewright {
namespace {

constexpr char kWarning[] = "checkpoint after step ";
// A step that a checkpoint is announced for lies so far ahead that all workers hear of it in time.
constexpr absl::Duration kAhead = absl::Seconds(1);
constexpr int64_t kLeastAhead = 2;
constexpr int kMostDoublings = 10;
// How long a lost worker is waited for when others already gave up its job.
constexpr absl::Duration kLossIsKnownWithin = absl::Seconds(2);

}  // namespace

void JobManager::AnnounceCheckpoint(Record& record, absl::Time now) {
  CheckpointProgress& progress = record.checkpoints;
  const v1::JobMetrics& metrics = record.job.metrics();
  const int64_t every = record.job.spec().checkpoints().every_ns();
  if (every == 0 || progress.announced > 0) return;
  if (progress.last == absl::InfinitePast()) progress.last = now;
  if (now - progress.last < absl::Nanoseconds(every)) return;
  const int64_t ahead =
      kLeastAhead + absl::ToInt64Nanoseconds(kAhead) / std::max<int64_t>(metrics.step_ns(), 1);
  const int64_t step = metrics.step() + (ahead << progress.doublings);
  if (step >= record.total_steps && record.total_steps > 0) return;  // The end comes first.
  progress.announced = step;
  v1::ConnectResponse message;
  message.mutable_checkpoint_after()->set_job(record.job.name());
  message.mutable_checkpoint_after()->set_generation(record.job.generation());
  message.mutable_checkpoint_after()->set_step(step);
  SendToAll(record, message);
}

void JobManager::Handle(const std::string& worker, const v1::ShardWritten& message) {
  Record* record = FindRun(worker, message.job(), message.generation());
  if (record == nullptr || !Runs(record->job.state())) return;
  CheckpointProgress& progress = record->checkpoints;
  CheckpointShares& shares = progress.shares[message.step()];
  shares.devices.insert(message.device());
  shares.files.insert(shares.files.end(), message.files().begin(), message.files().end());
  if (!message.error().empty()) {
    const std::string error =
        absl::StrCat("device ", record->job.devices(message.device()), ": ", message.error());
    if (!message.skipped() && record->job.spec().checkpoints().fail_job()) {
      return End(*record, v1::JOB_STATE_FAILED,
                 absl::StrCat(kWarning, message.step(), " could not be written: ", error));
    }
    if (shares.error.empty()) shares.error = error;
  }
  const bool announced = progress.announced == message.step();
  if (announced && message.skipped())
    progress.doublings = std::min(progress.doublings + 1, kMostDoublings);
  if (static_cast<int>(shares.devices.size()) < record->job.plan().program().devices_size()) return;

  if (announced) progress.announced = 0;
  const CheckpointShares done = std::move(shares);
  progress.shares.erase(progress.shares.begin(), progress.shares.upper_bound(message.step()));
  if (!done.error.empty()) return WarnOfCheckpoint(*record, message.step(), done.error);
  progress.last = absl::Now();
  v1::ConnectResponse complete;
  v1::WriteManifest* manifest = complete.mutable_write_manifest();
  manifest->set_job(message.job());
  manifest->set_generation(message.generation());
  manifest->set_step(message.step());
  for (const v1::CheckpointFile& file : done.files) *manifest->add_files() = file;
  // The worker that merges the final checkpoint, too: it waits for the manifest then.
  registry_->Send(record->worker_devices.begin()->first, complete);
}

void JobManager::Handle(const std::string& worker, const v1::CheckpointWritten& message) {
  Record* record = FindRun(worker, message.job(), message.generation());
  if (record == nullptr || !Runs(record->job.state())) return;
  if (message.error().empty()) {
    record->job.set_checkpoint_step(message.step());
    record->job.set_version(record->job.version() + 1);
    return Announce(*record);
  }
  if (record->job.spec().checkpoints().fail_job()) {
    return End(*record, v1::JOB_STATE_FAILED,
               absl::StrCat(kWarning, message.step(), " could not be completed: worker ", worker,
                            ": ", message.error()));
  }
  WarnOfCheckpoint(*record, message.step(), absl::StrCat("worker ", worker, ": ", message.error()));
}

// The latest one only: a full disk would fill the job's record otherwise.
void JobManager::WarnOfCheckpoint(Record& record, int64_t step, const std::string& error) {
  auto* warnings = record.job.mutable_warnings();
  const std::string text = absl::StrCat(kWarning, step, " was skipped: ", error);
  const auto old = std::find_if(warnings->begin(), warnings->end(), [](const std::string& warning) {
    return absl::StartsWith(warning, kWarning);
  });
  if (old != warnings->end()) {
    *old = text;
  } else {
    record.job.add_warnings(text);
  }
  record.job.set_version(record.job.version() + 1);
  Announce(record);
}

bool JobManager::MayRestart(const Record& record) const {
  return !suspended_ && record.job.restarts() < record.job.spec().max_restarts();
}

void JobManager::FailOrRestart(Record& record, const std::string& message) {
  if (!MayRestart(record)) return End(record, v1::JOB_STATE_FAILED, message);
  const v1::ConnectResponse abort = AbortOf(record.job);
  record.job.set_restarts(record.job.restarts() + 1);
  Transition(record, v1::JOB_STATE_PENDING,
             absl::StrCat(message, "; starting again from the last checkpoint"));
  if (!IsTerminal(record.job.state())) SendToAll(record, abort);
  registry_->Release(record.job.name());
  Advance();
}

bool JobManager::AwaitLoss(Record& record, const v1::Failed& failure, const std::string& message) {
  // Another device's end is often told by those that it exchanged messages with first.
  if (record.job.state() != v1::JOB_STATE_RUNNING || !MayRestart(record) ||
      failure.code() != static_cast<int32_t>(absl::StatusCode::kUnavailable))
    return false;
  Transition(record, v1::JOB_STATE_RECOVERING, message);
  record.given_up = true;
  record.deadline = absl::Now() + kLossIsKnownWithin;
  return true;
}

}  // namespace stagewright
