#include "planner_service/lifecycle/run_reports.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/units.h"
#include "common/clock/steady_now.h"
#include "planner_service/lifecycle/measurements.h"
#include "planner_service/runs/worker_messages.h"

namespace stagewright {
namespace {

constexpr int64_t kCoarsest = int64_t{1} << 40;  // Whatever a worker says.
constexpr char kCheckpoint[] = "checkpoint after step ";

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
std::optional<StepShare> AddStep(JobRecords& records, JobRecord& record, int32_t device,
                                 const StepShare& share) {
  if (record.history.Has(share.figures.step)) return std::nullopt;
  std::optional<StepShare> whole = record.run->steps().Add(device, share);
  record.history.Coarsen(record.run->steps().stride());
  if (!whole.has_value()) return std::nullopt;
  record.history.Add(ToProto(whole->figures));
  records.WriteStepsSoon(record);
  return whole;
}

// One after that step that cannot be written fails the job. Nobody asked for those from halfway.
bool NeedsCheckpoint(const Job& job, int64_t step) {
  const std::optional<CheckpointPolicy>& policy = job.request->training.checkpoints;
  return policy.has_value() && policy->fail_job && !policy->IsHalfway(step);
}

// Tells watchers of the step, and workers of a checkpoint that is due, if it is news.
void ReportStep(JobRecords& records, JobRecord& record, const StepShare& step) {
  Job& job = record.job;
  Run& run = *record.run;
  const StepFigures& figures = step.figures;
  if (!run.IsNews(figures)) return;
  JobMetrics& metrics = job.metrics;
  metrics.step = figures.step;
  metrics.loss = figures.loss;
  metrics.step_time = figures.time;
  metrics.median_step_time = run.median_step_time();
  metrics.recent_step_time = run.recent_steps().Median();
  if (figures.skipped) ++metrics.skipped_steps;
  metrics.loss_scale = step.loss_scale;
  if (step.evaluation.has_value()) NoteEvaluation(*step.evaluation, metrics);
  if (figures.time > 0) {
    metrics.samples_per_second =
        static_cast<double>(job.request->mini_batch) * 1e9 / static_cast<double>(figures.time);
  }
  const auto due =
      run.checkpoints().Announce(figures.step, figures.time, run.total_steps(), SteadyNow());
  if (due.has_value()) records.SendToAll(record, CheckpointMessage(job, *due));
  WatchDrift(records, record, SteadyNow());
  records.AnnounceChange(job);
}

// The latest one only: a full disk would fill the job's record otherwise.
void WarnOfCheckpoint(JobRecords& records, Job& job, int64_t step, const std::string& error) {
  const std::string text = absl::StrCat(kCheckpoint, step, " was skipped: ", error);
  records.Note(job, EventKind::kCheckpointFailed, text);
  const auto old = std::find_if(
      job.warnings.begin(), job.warnings.end(),
      [](const std::string& warning) { return absl::StartsWith(warning, kCheckpoint); });
  if (old != job.warnings.end()) {
    *old = text;
  } else {
    job.warnings.push_back(text);
  }
  records.AnnounceChange(job);
}

}  // namespace

bool IsOfRun(JobState state, const v1::ConnectRequest& message) {
  switch (message.message_case()) {
    case v1::ConnectRequest::kGraphNeeded:
    case v1::ConnectRequest::kFetching:
    case v1::ConnectRequest::kPrepared:
    case v1::ConnectRequest::kConnected:
      return state == JobState::kStarting;
    case v1::ConnectRequest::kFailed:
      return true;
    default:
      return Runs(state);
  }
}

bool NoteFetching(JobRecords& records, JobRecord& record, const std::string& worker,
                  const v1::Fetching& message) {
  const Fetched fetched = {Bytes(message.fetched_bytes()), Bytes(message.total_bytes())};
  if (!record.run->NoteFetched(worker, fetched)) return false;
  const Fetched all = record.run->fetched();
  record.job.message = absl::StrCat("preparing workers: ", FormatBytes(all.done), " of ",
                                    FormatBytes(all.total), " of weights fetched");
  records.AnnounceChange(record.job);
  return true;
}

void NoteProgress(JobRecords& records, JobRecord& record, const v1::Progress& message) {
  NoteActions(records, record, message);
  std::optional<StepShare> whole;
  for (const v1::DeviceProgress& device : message.devices()) {
    NoteMemory(device, record.job.metrics);
    if (auto step = AddStep(records, record, device.device(), ShareOf(device, message.step())))
      whole = step;
  }
  if (whole.has_value()) ReportStep(records, record, *whole);
}

void NoteSteps(JobRecords& records, JobRecord& record, const v1::StepsSoFar& message) {
  std::optional<StepShare> newest;
  for (const v1::DeviceSteps& device : message.devices()) {
    record.history.Coarsen(std::min(device.stride(), kCoarsest));
    for (const v1::JobStep& step : device.steps()) {
      auto whole = AddStep(records, record, device.device(), ShareOf(step));
      if (whole.has_value() && (!newest.has_value() || newest->figures.step < whole->figures.step))
        newest = whole;
    }
  }
  if (newest.has_value()) ReportStep(records, record, *newest);
}

std::optional<std::string> NoteShard(JobRecords& records, JobRecord& record,
                                     const v1::ShardWritten& message) {
  Job& job = record.job;
  WrittenShare share = FromProto(message);
  if (share.device < 0 || static_cast<size_t>(share.device) >= job.devices.size())
    return std::nullopt;
  if (!share.error.empty()) {
    share.error =
        absl::StrCat("device ", job.devices[static_cast<size_t>(share.device)], ": ", share.error);
    // Whoever skips one may remove it while others still write their shares.
    const bool skipped = share.skipped || record.run->checkpoints().IsSkipped(share.step);
    if (!skipped && NeedsCheckpoint(job, share.step))
      return absl::StrCat(kCheckpoint, share.step, " could not be written: ", share.error);
  }
  const auto written = record.run->checkpoints().Add(share, SteadyNow());
  if (!written.has_value()) return std::nullopt;
  if (written->error.empty()) {
    // The worker that merges the final checkpoint, too: it waits for the manifest then.
    records.SendToFirst(record, ManifestMessage(job, *written));
  } else {
    WarnOfCheckpoint(records, job, written->step, written->error);
  }
  return std::nullopt;
}

std::optional<std::string> NoteCheckpoint(JobRecords& records, JobRecord& record,
                                          const std::string& worker,
                                          const v1::CheckpointWritten& message) {
  Job& job = record.job;
  record.run->checkpoints().EndManifest(message.step());
  if (message.error().empty()) {
    job.checkpoint_step = message.step();
    job.checkpoint_time = absl::Now();
    records.Note(job, EventKind::kCheckpoint, absl::StrCat("after step ", message.step()), worker);
    record.write_job = true;
    records.WriteStepsSoon(record);
    records.AnnounceChange(job);
    return std::nullopt;
  }
  const std::string error = absl::StrCat("worker ", worker, ": ", message.error());
  if (NeedsCheckpoint(job, message.step()))
    return absl::StrCat(kCheckpoint, message.step(), " could not be completed: ", error);
  WarnOfCheckpoint(records, job, message.step(), error);
  return std::nullopt;
}

void NoteFinished(JobRecords& records, JobRecord& record, const std::string& worker,
                  const v1::Finished& message) {
  Run& run = *record.run;
  if (!run.Complete(worker, FromProto(message))) return;
  const Completion& all = run.completion();
  JobMetrics& metrics = record.job.metrics;
  if (all.evaluated > 0) metrics.evaluation_loss = all.evaluation.loss;
  metrics.accuracy = all.evaluation.accuracy().value_or(metrics.accuracy);
  records.SendToFirst(record, MergeMessage(record.job, run));
}

void SaveManifest(JobRecords& records, JobRecord& record) {
  const Run& run = *record.run;
  const auto& written = run.checkpoints().without_manifest();
  if (!written.has_value()) return;
  // Whoever is to write it may be dead by now, and all others, too.
  const v1::ConnectResponse manifest = ManifestMessage(record.job, *written);
  record.unwritten = {manifest.write_manifest(), record.job.planned_graph.seal()->hash};
  if (!run.lost().contains(run.first_worker())) return;
  for (const auto& [worker, devices] : run.workers()) {
    if (run.lost().contains(worker)) continue;
    return records.Send(record, worker, manifest);
  }
}

void TellAgain(JobRecords& records, JobRecord& record, const std::string& worker) {
  const Job& job = record.job;
  const Run& run = *record.run;
  records.Send(record, worker, StartMessage(job));
  if (const int64_t step = run.checkpoints().announced(); step > 0)
    records.Send(record, worker, CheckpointMessage(job, step));
  if (run.settled_flush > 0)
    records.Send(record, worker, CheckpointMessage(job, run.settled_flush));
  if (worker != run.first_worker()) return;
  if (const auto& written = run.checkpoints().without_manifest(); written.has_value())
    records.Send(record, worker, ManifestMessage(job, *written));
  if (run.IsComplete()) records.Send(record, worker, MergeMessage(job, run));
}

}  // namespace stagewright
