#include "planner_service/runs/check_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/wire/step_history.h"

namespace stagewright {
namespace {

template <typename... What>
absl::Status Wrong(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

// An action may be told in parts, as a message in pieces is.
constexpr int64_t kMostParts = 4;
// Bytes: 1 PiB; sums over all workers do not overflow.
constexpr int64_t kMostFetched = int64_t{1} << 50;

int64_t ActionsOf(const v1::Program& program) {
  int64_t actions = 0;
  for (const v1::DeviceProgram& device : program.devices())
    actions += device.prologue_size() + device.body_size() + device.epilogue_size();
  return actions;
}

// What the reports of one worker are held against.
class Checker {
 public:
  Checker(const Job& job, const Run& run, const std::string& worker)
      : own_(run.workers().at(worker)),
        all_devices_(static_cast<int32_t>(job.devices.size())),
        last_step_(run.total_steps() > 0 ? run.total_steps() : kMostSteps),
        events_(job.plan == nullptr ? 0 : MostEvents(*job.plan)) {}

  absl::Status Device(absl::string_view field, int32_t device) const {
    if (std::find(own_.begin(), own_.end(), device) != own_.end()) return absl::OkStatus();
    return Wrong(field, ": ", device, " is none of its devices");
  }
  absl::Status AnyDevice(absl::string_view field, int32_t device) const {
    if (device >= 0 && device < all_devices_) return absl::OkStatus();
    return Wrong(field, ": ", device, " is none of the job's devices");
  }
  absl::Status Step(absl::string_view field, int64_t step, int64_t least = 1) const {
    if (step >= least && step <= last_step_) return absl::OkStatus();
    return Wrong(field, ": ", step, " is not from ", least, " to ", last_step_);
  }
  absl::Status Count(absl::string_view field, int64_t count) const {
    return count >= 0 ? absl::OkStatus() : Wrong(field, ": must not be negative");
  }
  absl::Status Entries(absl::string_view field, int64_t entries, int64_t most) const {
    if (entries <= most) return absl::OkStatus();
    return Wrong(field, ": ", entries, " are more than the ", most, " that there can be");
  }
  absl::Status Text(absl::string_view field, const std::string& text) const {
    if (text.size() <= kMostText) return absl::OkStatus();
    return Wrong(field, ": ", text.size(), " bytes are more than ", kMostText);
  }
  template <typename Texts>
  absl::Status AllTexts(absl::string_view field, const Texts& texts) const {
    RETURN_IF_ERROR(Entries(field, texts.size(), kMostTexts));
    for (const std::string& text : texts) RETURN_IF_ERROR(Text(field, text));
    return absl::OkStatus();
  }

  int64_t devices() const { return static_cast<int64_t>(own_.size()); }
  int64_t all_devices() const { return all_devices_; }
  int64_t events() const { return events_; }

 private:
  const std::vector<int32_t>& own_;
  const int32_t all_devices_;
  const int64_t last_step_;
  const int64_t events_;  // A step has at most so many.
};

absl::Status Check(const Checker& checker, const v1::Fetching& report) {
  RETURN_IF_ERROR(checker.Count("fetching.fetched_bytes", report.fetched_bytes()));
  if (report.total_bytes() < report.fetched_bytes() || report.total_bytes() > kMostFetched)
    return Wrong("fetching.total_bytes: cannot be ", report.total_bytes());
  return absl::OkStatus();
}

absl::Status Check(const Checker& checker, const v1::Prepared& report) {
  RETURN_IF_ERROR(checker.Count("prepared.total_steps", report.total_steps()));
  RETURN_IF_ERROR(checker.Count("prepared.first_step", report.first_step()));
  RETURN_IF_ERROR(checker.Text("prepared.resumed_from", report.resumed_from()));
  RETURN_IF_ERROR(checker.AllTexts("prepared.warnings", report.warnings()));
  for (const v1::DeviceAddress& address : report.addresses()) {
    RETURN_IF_ERROR(checker.Device("prepared.addresses.device", address.device()));
    RETURN_IF_ERROR(checker.Text("prepared.addresses.address", address.address()));
  }
  return checker.Entries("prepared.addresses", report.addresses_size(), checker.devices());
}

absl::Status Check(const Checker& checker, const v1::Progress& report) {
  RETURN_IF_ERROR(checker.Step("progress.step", report.step()));
  RETURN_IF_ERROR(checker.Entries("progress.devices", report.devices_size(), checker.devices()));
  for (const v1::DeviceProgress& device : report.devices()) {
    RETURN_IF_ERROR(checker.Device("progress.devices.device", device.device()));
    RETURN_IF_ERROR(checker.Count("progress.devices.step_ns", device.step_ns()));
  }
  for (const v1::TraceEvent& event : report.trace())
    RETURN_IF_ERROR(checker.Device("progress.trace.device", event.device()));
  return checker.Entries("progress.trace", report.trace_size(), checker.events());
}

absl::Status Check(const Checker& checker, const v1::StepsSoFar& report) {
  RETURN_IF_ERROR(
      checker.Entries("steps_so_far.devices", report.devices_size(), checker.devices()));
  for (const v1::DeviceSteps& device : report.devices()) {
    RETURN_IF_ERROR(checker.Device("steps_so_far.devices.device", device.device()));
    RETURN_IF_ERROR(checker.Entries("steps_so_far.devices.steps", device.steps_size(),
                                    2 * StepHistory::kBound));
    for (const v1::JobStep& step : device.steps())
      RETURN_IF_ERROR(checker.Step("steps_so_far.devices.steps.step", step.step()));
  }
  return absl::OkStatus();
}

absl::Status Check(const Checker& checker, const v1::ShardWritten& report) {
  RETURN_IF_ERROR(checker.Device("shard_written.device", report.device()));
  RETURN_IF_ERROR(checker.Step("shard_written.step", report.step()));
  RETURN_IF_ERROR(checker.Text("shard_written.error", report.error()));
  for (const v1::CheckpointFile& file : report.files()) {
    RETURN_IF_ERROR(checker.Text("shard_written.files.name", file.name()));
    RETURN_IF_ERROR(checker.Count("shard_written.files.bytes", file.bytes()));
  }
  return checker.Entries("shard_written.files", report.files_size(), kMostFiles);
}

absl::Status Check(const Checker& checker, const v1::CheckpointWritten& report) {
  RETURN_IF_ERROR(checker.Step("checkpoint_written.step", report.step()));
  RETURN_IF_ERROR(checker.Text("checkpoint_written.error", report.error()));
  return checker.Text("checkpoint_written.path", report.path());
}

absl::Status Check(const Checker& checker, const v1::Finished& report) {
  RETURN_IF_ERROR(checker.AllTexts("finished.shards", report.shards()));
  RETURN_IF_ERROR(checker.Count("finished.evaluated_samples", report.evaluated_samples()));
  RETURN_IF_ERROR(checker.Count("finished.predicted_samples", report.predicted_samples()));
  RETURN_IF_ERROR(checker.Count("finished.correct_samples", report.correct_samples()));
  return checker.Step("finished.stopped_after_step", report.stopped_after_step(), /*least=*/0);
}

absl::Status Check(const Checker& checker, const v1::Failed& report) {
  RETURN_IF_ERROR(checker.Text("failed.message", report.message()));
  RETURN_IF_ERROR(checker.Entries("failed.unreached_devices", report.unreached_devices_size(),
                                  checker.all_devices()));
  for (const int32_t device : report.unreached_devices())
    RETURN_IF_ERROR(checker.AnyDevice("failed.unreached_devices", device));
  return absl::OkStatus();
}

}  // namespace

int64_t MostEvents(const v1::Plan& plan) {
  int64_t actions = ActionsOf(plan.program());
  for (const v1::LengthPlan& length : plan.lengths())
    actions = std::max(actions, ActionsOf(length.program()));
  return kMostParts * actions;
}

absl::Status CheckReport(const Job& job, const Run& run, const std::string& worker,
                         const v1::ConnectRequest& report) {
  const Checker checker(job, run, worker);
  switch (report.message_case()) {
    case v1::ConnectRequest::kPrepared:
      return Check(checker, report.prepared());
    case v1::ConnectRequest::kFetching:
      return Check(checker, report.fetching());
    case v1::ConnectRequest::kProgress:
      return Check(checker, report.progress());
    case v1::ConnectRequest::kStepsSoFar:
      return Check(checker, report.steps_so_far());
    case v1::ConnectRequest::kShardWritten:
      return Check(checker, report.shard_written());
    case v1::ConnectRequest::kCheckpointWritten:
      return Check(checker, report.checkpoint_written());
    case v1::ConnectRequest::kCheckpointAgreed:
      return checker.Step("checkpoint_agreed.step", report.checkpoint_agreed().step());
    case v1::ConnectRequest::kFinished:
      return Check(checker, report.finished());
    case v1::ConnectRequest::kMerged:
      return checker.Text("merged.checkpoint_path", report.merged().checkpoint_path());
    case v1::ConnectRequest::kFailed:
      return Check(checker, report.failed());
    default:
      return absl::OkStatus();
  }
}

}  // namespace stagewright
