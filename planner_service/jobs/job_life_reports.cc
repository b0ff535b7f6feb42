// What workers report of the runs they take part in.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "planner_service/jobs/job_life.h"
#include "planner_service/jobs/worker_messages.h"

namespace stagewright {
namespace {

constexpr int64_t kCoarsest = int64_t{1} << 40;  // Whatever a worker says.
// Workers still know what the store misses if the planner is killed.
constexpr absl::Duration kWriteEvery = absl::Seconds(5);
constexpr char kCheckpoint[] = "checkpoint after step ";
// How long a lost worker is waited for when others already gave up its job.
constexpr absl::Duration kLossIsKnownWithin = absl::Seconds(2);

// A restarted job keeps the largest peak of its attempts.
void NoteMemory(const v1::DeviceProgress& progress, JobMetrics& metrics) {
  for (DeviceMemory& memory : metrics.memory) {
    if (memory.device != progress.device()) continue;
    memory.measured_peak = std::max(memory.measured_peak, Bytes(progress.peak_memory_bytes()));
    memory.in_use = Bytes(progress.memory_in_use_bytes());
    memory.reserved = Bytes(progress.memory_reserved_bytes());
    memory.allocations = progress.allocations();
  }
}

void NoteEvaluation(const EvaluationFigures& evaluation, JobMetrics& metrics) {
  metrics.evaluation_loss = evaluation.loss;
  metrics.accuracy = evaluation.accuracy().value_or(metrics.accuracy);
}

// Adds what a device says of a step; the step of all devices if this was the last. It is then in
// the history.
std::optional<StepShare> AddStep(JobRecord& record, int32_t device, const StepShare& share) {
  if (record.history.Has(share.figures.step)) return std::nullopt;
  std::optional<StepShare> whole = record.run->steps().Add(device, share);
  if (!whole.has_value()) return std::nullopt;
  record.history.Add(ToProto(whole->figures));
  record.write_steps = std::min(record.write_steps, absl::Now() + kWriteEvery);
  return whole;
}

// One that cannot be written fails the job.
bool NeedsCheckpoints(const Job& job) {
  const std::optional<CheckpointPolicy>& policy = job.request->training.checkpoints;
  return policy.has_value() && policy->fail_job;
}

bool IsOfRun(JobState state, const v1::ConnectRequest& message) {
  switch (message.message_case()) {
    case v1::ConnectRequest::kPrepared:
    case v1::ConnectRequest::kConnected:
      return state == JobState::kStarting;
    case v1::ConnectRequest::kFailed:
      return true;
    default:
      return Runs(state);
  }
}

}  // namespace

JobRecord* JobLife::FindRun(const std::string& worker, const std::string& name,
                            int64_t generation) {
  JobRecord* record = Find(JobNumber(name));
  const bool takes_part = record != nullptr && !IsTerminal(record->job.state) &&
                          record->run.has_value() && record->job.generation == generation &&
                          record->run->HasWorker(worker);
  return takes_part ? record : nullptr;
}

void JobLife::OnMessage(const std::string& worker, const v1::ConnectRequest& message) {
  const auto handle = [&](const auto& report) {
    JobRecord* record = FindRun(worker, report.job(), report.generation());
    if (record != nullptr && IsOfRun(record->job.state, message)) Handle(*record, worker, report);
  };
  switch (message.message_case()) {
    case v1::ConnectRequest::kPrepared:
      return handle(message.prepared());
    case v1::ConnectRequest::kConnected:
      return handle(message.connected());
    case v1::ConnectRequest::kProgress:
      return handle(message.progress());
    case v1::ConnectRequest::kFinished:
      return handle(message.finished());
    case v1::ConnectRequest::kMerged:
      return handle(message.merged());
    case v1::ConnectRequest::kFailed:
      return handle(message.failed());
    case v1::ConnectRequest::kShardWritten:
      return handle(message.shard_written());
    case v1::ConnectRequest::kCheckpointWritten:
      return handle(message.checkpoint_written());
    case v1::ConnectRequest::kStepsSoFar:
      return handle(message.steps_so_far());
    case v1::ConnectRequest::kRegister:
    case v1::ConnectRequest::kHeartbeat:
    case v1::ConnectRequest::MESSAGE_NOT_SET:
      return;  // The service's own affair.
  }
}

void JobLife::Handle(JobRecord& record, const std::string& worker, const v1::Prepared& message) {
  const Preparation preparation = FromProto(message);
  if (absl::Status status = record.run->Prepare(worker, preparation); !status.ok())
    return End(record, JobState::kFailed, std::string(status.message()));
  for (const std::string& warning : preparation.warnings) record.job.Warn(warning);
  if (record.run->IsPrepared()) SendToAll(record, ConnectMessage(record.job, *record.run));
}

void JobLife::Handle(JobRecord& record, const std::string& worker, const v1::Connected&) {
  Job& job = record.job;
  Run& run = *record.run;
  if (!run.Connect(worker, absl::Now())) return;
  job.metrics.total_steps = run.total_steps();
  if (!record.history.empty()) {
    record.history.DropAfter(run.first_step());
    record.write_steps = absl::Now();  // With the transition: the store must not know them either.
  }
  Transition(record, JobState::kRunning, "");
  if (!IsTerminal(job.state)) return SendToAll(record, StartMessage(job));
  SendToAll(record, AbortMessage(job.name(), job.generation, job.message));
  record.run.reset();
  registry_->Release(job.name());
  Advance();
}

void JobLife::Handle(JobRecord& record, const std::string&, const v1::Progress& message) {
  record.trace.mutable_measured()->MergeFrom(message.trace());
  std::optional<StepShare> whole;
  for (const v1::DeviceProgress& device : message.devices()) {
    NoteMemory(device, record.job.metrics);
    if (auto step = AddStep(record, device.device(), ShareOf(device, message.step())))
      whole = std::move(step);
  }
  if (whole.has_value()) ReportStep(record, *whole);
}

void JobLife::Handle(JobRecord& record, const std::string&, const v1::StepsSoFar& message) {
  std::optional<StepShare> newest;
  for (const v1::DeviceSteps& device : message.devices()) {
    record.history.Coarsen(std::min(device.stride(), kCoarsest));
    for (const v1::JobStep& step : device.steps()) {
      auto whole = AddStep(record, device.device(), ShareOf(step));
      if (whole.has_value() && (!newest.has_value() || newest->figures.step < whole->figures.step))
        newest = std::move(whole);
    }
  }
  if (newest.has_value()) ReportStep(record, *newest);
}

void JobLife::ReportStep(JobRecord& record, const StepShare& step) {
  Job& job = record.job;
  Run& run = *record.run;
  const StepFigures& figures = step.figures;
  if (!run.IsNews(figures)) return;
  JobMetrics& metrics = job.metrics;
  metrics.step = figures.step;
  metrics.loss = figures.loss;
  metrics.step_time = figures.time;
  metrics.median_step_time = run.median_step_time();
  if (figures.skipped) ++metrics.skipped_steps;
  metrics.loss_scale = step.loss_scale;
  if (step.evaluation.has_value()) NoteEvaluation(*step.evaluation, metrics);
  if (figures.time > 0) {
    metrics.samples_per_second =
        static_cast<double>(job.request->mini_batch) * 1e9 / static_cast<double>(figures.time);
  }
  const auto due =
      run.checkpoints().Announce(figures.step, figures.time, run.total_steps(), absl::Now());
  if (due.has_value()) SendToAll(record, CheckpointMessage(job, *due));
  AnnounceChange(job);
}

void JobLife::Handle(JobRecord& record, const std::string&, const v1::ShardWritten& message) {
  Job& job = record.job;
  WrittenShare share = FromProto(message);
  if (share.device < 0 || static_cast<size_t>(share.device) >= job.devices.size()) return;
  if (!share.error.empty()) {
    share.error =
        absl::StrCat("device ", job.devices[static_cast<size_t>(share.device)], ": ", share.error);
    if (!share.skipped && NeedsCheckpoints(job)) {
      return End(record, JobState::kFailed,
                 absl::StrCat(kCheckpoint, share.step, " could not be written: ", share.error));
    }
  }
  const auto written = record.run->checkpoints().Add(share, absl::Now());
  if (!written.has_value()) return;
  if (!written->error.empty()) return WarnOfCheckpoint(job, written->step, written->error);
  // The worker that merges the final checkpoint, too: it waits for the manifest then.
  registry_->Send(record.run->first_worker(), ManifestMessage(job, *written));
}

void JobLife::Handle(JobRecord& record, const std::string& worker,
                     const v1::CheckpointWritten& message) {
  Job& job = record.job;
  if (message.error().empty()) {
    job.checkpoint_step = message.step();
    return AnnounceChange(job);
  }
  const std::string error = absl::StrCat("worker ", worker, ": ", message.error());
  if (NeedsCheckpoints(job)) {
    return End(record, JobState::kFailed,
               absl::StrCat(kCheckpoint, message.step(), " could not be completed: ", error));
  }
  WarnOfCheckpoint(job, message.step(), error);
}

// The latest one only: a full disk would fill the job's record otherwise.
void JobLife::WarnOfCheckpoint(Job& job, int64_t step, const std::string& error) {
  const std::string text = absl::StrCat(kCheckpoint, step, " was skipped: ", error);
  const auto old = std::find_if(
      job.warnings.begin(), job.warnings.end(),
      [](const std::string& warning) { return absl::StartsWith(warning, kCheckpoint); });
  if (old != job.warnings.end()) {
    *old = text;
  } else {
    job.warnings.push_back(text);
  }
  AnnounceChange(job);
}

void JobLife::Handle(JobRecord& record, const std::string& worker, const v1::Finished& message) {
  Run& run = *record.run;
  if (!run.Complete(worker, FromProto(message))) return;
  const Completion& all = run.completion();
  JobMetrics& metrics = record.job.metrics;
  if (all.evaluated > 0) metrics.evaluation_loss = all.evaluation.loss;
  metrics.accuracy = all.evaluation.accuracy().value_or(metrics.accuracy);
  registry_->Send(run.first_worker(), MergeMessage(record.job, run));
}

void JobLife::Handle(JobRecord& record, const std::string&, const v1::Merged& message) {
  record.job.checkpoint_path = message.checkpoint_path();
  const int64_t stopped_after = record.run->completion().stopped_after;
  End(record, JobState::kSucceeded,
      stopped_after == 0 ? std::string()
                         : absl::StrCat("stopped early after step ", stopped_after,
                                        ": the evaluation loss got no better"));
}

void JobLife::Handle(JobRecord& record, const std::string& worker, const v1::Failed& message) {
  Job& job = record.job;
  Run& run = *record.run;
  // What the others say of a lost worker is an echo of its loss.
  const bool echo = job.state == JobState::kRecovering;
  const std::string text = absl::StrCat(echo ? absl::StrCat(job.message, "; ") : "", "worker ",
                                        worker, ": ", message.message());
  if (echo && run.given_up) return;  // Another echo, while the loss is waited for.
  // Another device's end is often told by those that it exchanged messages with first: the loss is
  // waited for.
  if (job.state == JobState::kRunning && MayRestart(job) &&
      message.code() == static_cast<int32_t>(absl::StatusCode::kUnavailable)) {
    Transition(record, JobState::kRecovering, text);
    run.given_up = true;
    run.deadline = absl::Now() + kLossIsKnownWithin;
    return;
  }
  if (echo && !run.lost().empty()) return FailOrRestart(record, text);
  job.failure_code = message.code();
  End(record, JobState::kFailed, text);
}

void JobLife::WriteSteps(JobRecord& record) {
  if (record.write_steps == absl::InfiniteFuture()) return;
  const bool written = store_.WriteSteps(record.job, record.history).ok();
  record.write_steps = written ? absl::InfiniteFuture() : absl::Now() + kWriteEvery;
}

}  // namespace stagewright
