// What workers report of the steps they do: for watchers the newest, for the history all.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "planner_service/jobs/job_manager.h"

namespace stagewright {
namespace {

// A step that some device has not reported yet waits at most until so many later ones do, too.
constexpr size_t kOpenSteps = 2 * StepHistory::kBound;
constexpr int64_t kCoarsest = int64_t{1} << 40;  // Whatever a worker says.
// Workers still know what the store misses if the planner is killed.
constexpr absl::Duration kWriteEvery = absl::Seconds(5);

std::string StepsKey(const v1::Job& job) { return absl::StrCat("steps/", job.name()); }

// A restarted job keeps the largest peak of its attempts.
void NoteMemory(const v1::DeviceProgress& device, v1::Job& job) {
  const auto& reports = job.plan().evaluation().devices();
  for (int i = 0; i < std::min(reports.size(), job.metrics().memory_size()); ++i) {
    if (reports[i].device() != device.device()) continue;
    v1::DeviceMemory* memory = job.mutable_metrics()->mutable_memory(i);
    memory->set_measured_peak_bytes(
        std::max(memory->measured_peak_bytes(), device.peak_memory_bytes()));
    memory->set_in_use_bytes(device.memory_in_use_bytes());
    memory->set_reserved_bytes(device.memory_reserved_bytes());
    memory->set_allocations(device.allocations());
  }
}

// Shares of the loss add up, the slowest device's time counts, and the rest is equal on all.
void AddShare(const v1::JobStep& share, v1::JobStep& whole) {
  whole.set_loss(whole.loss() + share.loss());
  whole.set_step_ns(std::max(whole.step_ns(), share.step_ns()));
  whole.set_learning_rate(std::max(whole.learning_rate(), share.learning_rate()));
  whole.set_skipped(whole.skipped() || share.skipped());
}

v1::JobStep ShareOf(const v1::DeviceProgress& progress) {
  v1::JobStep share;
  share.set_loss(progress.loss());
  share.set_step_ns(progress.step_ns());
  share.set_learning_rate(progress.learning_rate());
  share.set_skipped(progress.skipped());
  return share;
}

}  // namespace

void JobManager::Handle(const std::string& worker, const v1::Progress& message) {
  Record* record = FindRun(worker, message.job(), message.generation());
  if (record == nullptr || !Runs(record->job.state())) return;
  record->trace.mutable_measured()->MergeFrom(message.trace());
  for (const v1::DeviceProgress& device : message.devices()) NoteMemory(device, record->job);
  if (record->history.Has(message.step())) return;
  StepReport& report = record->steps[message.step()];
  for (const v1::DeviceProgress& device : message.devices()) {
    if (!report.devices.insert(device.device()).second) continue;
    AddShare(ShareOf(device), report.figures);
    report.loss_scale = std::max(report.loss_scale, device.loss_scale());  // Equal on all.
    if (device.has_evaluation()) report.evaluation = device.evaluation();
  }
  if (const auto whole = TakeWhole(*record, message.step())) ReportStep(*record, *whole);
}

void JobManager::Handle(const std::string& worker, const v1::StepsSoFar& message) {
  Record* record = FindRun(worker, message.job(), message.generation());
  if (record == nullptr || !Runs(record->job.state())) return;
  std::optional<StepReport> newest;
  for (const v1::DeviceSteps& device : message.devices()) {
    record->history.Coarsen(std::min(device.stride(), kCoarsest));
    for (const v1::JobStep& share : device.steps()) {
      if (record->history.Has(share.step())) continue;
      StepReport& report = record->steps[share.step()];
      if (!report.devices.insert(device.device()).second) continue;
      AddShare(share, report.figures);
      auto whole = TakeWhole(*record, share.step());
      if (whole.has_value() &&
          (!newest.has_value() || newest->figures.step() < whole->figures.step()))
        newest = std::move(whole);
    }
  }
  if (newest.has_value()) ReportStep(*record, *newest);
}

std::optional<JobManager::StepReport> JobManager::TakeWhole(Record& record, int64_t step) {
  auto it = record.steps.find(step);
  if (static_cast<int>(it->second.devices.size()) < record.job.plan().program().devices_size()) {
    while (record.steps.size() > kOpenSteps) record.steps.erase(record.steps.begin());
    return std::nullopt;
  }
  StepReport report = std::move(it->second);
  record.steps.erase(it);
  report.figures.set_step(step);
  record.history.Add(report.figures);
  record.write_steps = std::min(record.write_steps, absl::Now() + kWriteEvery);
  return report;
}

void JobManager::ReportStep(Record& record, const StepReport& report) {
  const v1::JobStep& step = report.figures;
  if (step.step() <= record.reported) return;
  record.reported = step.step();
  record.step_times.Add(step.step_ns());
  v1::JobMetrics* metrics = record.job.mutable_metrics();
  metrics->set_step(step.step());
  metrics->set_loss(step.loss());
  metrics->set_step_ns(step.step_ns());
  metrics->set_median_step_ns(record.step_times.value());
  if (step.skipped()) metrics->set_skipped_steps(metrics->skipped_steps() + 1);
  metrics->set_loss_scale(report.loss_scale);
  if (report.evaluation.has_value()) {
    metrics->set_evaluation_loss(report.evaluation->loss());
    if (report.evaluation->predicted_samples() > 0) {
      metrics->set_accuracy(static_cast<double>(report.evaluation->correct_samples()) /
                            static_cast<double>(report.evaluation->predicted_samples()));
    }
  }
  if (step.step_ns() > 0) {
    metrics->set_samples_per_second(static_cast<double>(record.job.spec().mini_batch()) * 1e9 /
                                    static_cast<double>(step.step_ns()));
  }
  AnnounceCheckpoint(record, absl::Now());
  // Progress is no transition: it is seen by watchers and not worth a write to disk.
  record.job.set_version(record.job.version() + 1);
  Announce(record);
}

Mutation JobManager::StepsMutation(const Record& record) {
  return {StepsKey(record.job), record.history.ToProto().SerializeAsString()};
}

void JobManager::WriteSteps(Record& record) {
  if (record.write_steps == absl::InfiniteFuture()) return;
  const bool written = store_->Write({StepsMutation(record)}).ok();
  record.write_steps = written ? absl::InfiniteFuture() : absl::Now() + kWriteEvery;
}

absl::Status JobManager::ReadSteps(Record& record) const {
  auto stored = store_->Read(StepsKey(record.job));
  if (absl::IsNotFound(stored.status())) return absl::OkStatus();
  RETURN_IF_ERROR(stored.status());
  v1::ListJobStepsResponse steps;
  if (!steps.ParseFromString(*stored))
    return absl::DataLossError(absl::StrCat("store: entry ", StepsKey(record.job), " is damaged"));
  record.history = StepHistory::FromProto(steps);
  return absl::OkStatus();
}

absl::StatusOr<v1::ListJobStepsResponse> JobManager::Steps(const std::string& name,
                                                           int64_t after_step) const {
  if (after_step < 0) return absl::InvalidArgumentError("after_step must not be negative");
  absl::MutexLock lock(&mutex_);
  auto it = jobs_.find(JobNumber(name));
  if (it == jobs_.end()) return absl::NotFoundError(absl::StrCat("no job \"", name, "\""));
  if (!it->second.history.empty()) return it->second.history.ToProto(after_step);
  Record ended;
  ended.job.set_name(it->second.job.name());
  RETURN_IF_ERROR(ReadSteps(ended));
  return ended.history.ToProto(after_step);
}

}  // namespace stagewright
