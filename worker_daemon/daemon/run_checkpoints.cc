#include "worker_daemon/daemon/run_checkpoints.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/plan/plan.h"
#include "common/wire/training_proto.h"
#include "worker_daemon/checkpoint/output_owner.h"

namespace stagewright {
namespace {

constexpr size_t kToldAgain = 2;  // Shares of a device.
constexpr char kNoRun[] = "";     // In the manifests of older versions.

// An asynchronous program runs empty for a checkpoint, which its losses depend on: it does so after
// the steps that were asked for only.
CheckpointPolicy PolicyOf(const v1::Prepare& prepare) {
  CheckpointPolicy policy = CheckpointsFromProto(prepare.spec());
  policy.halfway &= !prepare.program().asynchronous();
  return policy;
}

// Where there is no halfway, a loss costs no more than the interval all the same.
bool AwaitsWritten(const v1::Prepare& prepare) {
  const CheckpointPolicy policy = CheckpointsFromProto(prepare.spec());
  return policy.halfway && policy.every_steps > 0 &&
         (policy.every_steps == 1 || prepare.program().asynchronous());
}

}  // namespace

std::string RunOf(const v1::Prepare& prepare) {
  return PathPart(prepare.run().empty() ? prepare.job() : prepare.run());
}

RunCheckpoints::RunCheckpoints(const v1::Prepare& prepare, Reporter report)
    : prepare_(prepare),
      report_(std::move(report)),
      policy_(PolicyOf(prepare)),
      await_written_(AwaitsWritten(prepare)),
      root_(CheckpointRoot(prepare.spec().output_path())),
      run_(RunOf(prepare)),
      flushes_(policy_.every_steps) {}

RunCheckpoints::~RunCheckpoints() {
  std::thread thread;
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

void RunCheckpoints::CompleteEarlier(const Graph& graph) {
  if (!prepare_.has_unwritten()) return;
  const v1::WriteManifest& message = prepare_.unwritten();
  // Another worker may have been first, or the one that died with it written.
  if (ReadManifest(CheckpointDirectory(root_, message.step())).ok()) return;
  const absl::Status status = CompleteShares(message, graph);
  if (status.ok()) return;
  Log(LogLevel::kWarning, "a checkpoint of an earlier attempt cannot be completed",
      {{"job", prepare_.job()},
       {"generation", prepare_.generation()},
       {"step", message.step()},
       {"why", status.message()}});
}

absl::Status RunCheckpoints::Resume(v1::Prepared* prepared) {
  const v1::JobSpec& spec = prepare_.spec();
  RETURN_IF_ERROR(CheckNotInUse());
  std::vector<std::string> paths;
  if (prepare_.restart()) paths.push_back(spec.output_path());
  if (!spec.resume_path().empty()) paths.push_back(spec.resume_path());
  std::vector<std::string> skipped;
  const std::set<std::string> own = {run_, kNoRun}, any;
  for (size_t i = 0; i < paths.size(); ++i) {
    // The job may have been told to resume from where it writes, when that was an earlier job's.
    const bool again = prepare_.restart() && i == 0;
    auto found = Checkpoint::Find(paths[i], &skipped, again ? own : any);
    if (!found.ok()) {
      // A job that starts again may not have come to its first checkpoint.
      if (again && absl::IsNotFound(found.status())) continue;
      return Annotate(found.status(), "resume");
    }
    resume_ = std::make_shared<const Checkpoint>(*std::move(found));
    break;
  }
  goes_on_ = resume_ != nullptr && ResumesOwn(resume_->directory(), spec.output_path());
  if (!goes_on_ && !spec.overwrite()) RETURN_IF_ERROR(MayTakeOutput(spec.output_path(), run_));
  for (const std::string& reason : skipped) {
    Log(LogLevel::kWarning, "a checkpoint is passed over",
        {{"job", prepare_.job()}, {"generation", prepare_.generation()}, {"why", reason}});
    prepared->add_warnings(reason);
  }
  if (resume_ == nullptr) return absl::OkStatus();
  prepared->set_first_step(resume_->manifest().step);
  prepared->set_resumed_from(resume_->directory());
  return absl::OkStatus();
}

absl::Status RunCheckpoints::CheckNotInUse() const {
  return stagewright::CheckNotInUse(
      prepare_.spec().output_path(),
      {prepare_.unfinished_runs().begin(), prepare_.unfinished_runs().end()});
}

absl::Status RunCheckpoints::TakeOutput() {
  // A later generation may have the directory by now.
  RETURN_IF_ERROR(CheckNotAborted());
  RETURN_IF_ERROR(CheckNotInUse());
  const v1::JobSpec& spec = prepare_.spec();
  const OthersResults others = goes_on_           ? OthersResults::kKept
                               : spec.overwrite() ? OthersResults::kCleared
                                                  : OthersResults::kRefused;
  return stagewright::TakeOutput(spec.output_path(),
                                 {run_, prepare_.job(), spec.display_name(), prepare_.generation()},
                                 others);
}

absl::Status RunCheckpoints::CheckOwned() const {
  return stagewright::CheckOwned(prepare_.spec().output_path(), run_, prepare_.generation());
}

void RunCheckpoints::DropUnfinished(int64_t kept) {
  if (!MayWrite().ok()) return;
  // A planner of an older version says only here what may still be completed.
  const std::set<int64_t> stay = {kept, prepare_.unwritten().step()};
  for (const std::string& left : stagewright::DropUnfinished(root_, stay))
    Log(LogLevel::kWarning, "an unfinished checkpoint is not removed",
        {{"job", prepare_.job()}, {"generation", prepare_.generation()}, {"path", left}});
  const v1::JobSpec& spec = prepare_.spec();
  for (const std::string& left :
       DropShards(spec.output_path(), run_, prepare_.generation(),
                  /*others=*/spec.overwrite() && !goes_on_, spec.weights_path()))
    Log(LogLevel::kWarning, "shards of an earlier run are not removed",
        {{"job", prepare_.job()}, {"generation", prepare_.generation()}, {"path", left}});
}

absl::Status RunCheckpoints::CheckNotAborted() {
  absl::MutexLock lock(&mutex_);
  return aborted_ ? absl::CancelledError("the run is over") : absl::OkStatus();
}

absl::Status RunCheckpoints::MayWrite() {
  RETURN_IF_ERROR(CheckNotAborted());
  return CheckOwned();
}

void RunCheckpoints::DropFailed() {
  std::set<int64_t> failed;
  {
    absl::MutexLock lock(&mutex_);
    failed = failed_;
    while (failed_.size() > kToldAgain) failed_.erase(failed_.begin());
  }
  for (const std::string& left : stagewright::DropFailed(root_, failed))
    Log(LogLevel::kWarning, "a failed checkpoint is not removed",
        {{"job", prepare_.job()}, {"generation", prepare_.generation()}, {"path", left}});
}

void RunCheckpoints::AddTo(DeviceJob& spec) {
  spec.resume = resume_;
  // The planner may ask for one whatever the job's policy.
  spec.checkpoint_root = root_;
  spec.may_write = [this] {
    const absl::Status may_write = MayWrite();
    if (may_write.ok()) DropFailed();
    return may_write;
  };
  spec.writer = {run_, prepare_.generation()};
  const DeviceId device = spec.device;
  spec.checkpoint_due = [this, device](int64_t steps) { return IsDue(device, steps); };
  spec.await_checkpoints = await_written_;
  spec.on_checkpoint = [this, device](const CheckpointReport& report) {
    Report(device, report, /*too_late=*/false);
  };
  spec.holds = [this, device] {
    absl::MutexLock lock(&mutex_);
    return holding_.contains(device);
  };
  spec.await_go_on = [this, device] { AwaitGoOn(device); };
  if (spec.program->asynchronous)
    spec.flush_after = [this, device](int64_t step) { return flushes_.Next(device, step); };
}

bool RunCheckpoints::IsDue(DeviceId device, int64_t steps) {
  absl::MutexLock lock(&mutex_);
  reached_[device] = steps;
  if (hold_after_ == steps) holding_.insert(device);
  return policy_.IsDue(steps) || announced_.contains(steps);
}

void RunCheckpoints::AwaitGoOn(DeviceId device) {
  absl::MutexLock lock(&mutex_);
  const auto released = [this, device]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return aborted_ || !holding_.contains(device);
  };
  mutex_.Await(absl::Condition(&released));
}

void RunCheckpoints::GoOn() {
  flushes_.Withdraw();
  absl::MutexLock lock(&mutex_);
  hold_after_ = 0;
  holding_.clear();
}

void RunCheckpoints::Abort() {
  flushes_.Close();
  absl::MutexLock lock(&mutex_);
  aborted_ = true;
}

void RunCheckpoints::Announce(const v1::CheckpointAfter& message) {
  const int64_t step = message.step();
  if (message.offer()) {
    v1::ConnectRequest answer;
    v1::CheckpointAgreed* agreed = answer.mutable_checkpoint_agreed();
    agreed->set_job(prepare_.job());
    agreed->set_generation(prepare_.generation());
    agreed->set_step(step);
    agreed->set_late(!flushes_.Offer(step));
    return report_(std::move(answer));
  }
  std::vector<DeviceId> late;
  {
    absl::MutexLock lock(&mutex_);
    if (message.hold()) hold_after_ = step;
    const bool news = announced_.insert(step).second;
    // For a step that is due anyway nobody can be late, but to wait there.
    if (news && (message.hold() || !policy_.IsDue(step))) {
      for (const auto& [device, reached] : reached_) {
        if (reached >= step) late.push_back(device);
      }
    }
  }
  // A device that waits for this must find the step among those that are due.
  if (prepare_.program().asynchronous()) return flushes_.Settle(step);
  CheckpointReport report;
  report.step = step;
  report.status = absl::UnavailableError("it was announced too late");
  for (DeviceId device : late) Report(device, report, /*too_late=*/true);
}

void RunCheckpoints::Report(DeviceId device, const CheckpointReport& report, bool too_late) {
  v1::ConnectRequest message;
  v1::ShardWritten* written = message.mutable_shard_written();
  written->set_job(prepare_.job());
  written->set_generation(prepare_.generation());
  written->set_device(device.value());
  written->set_step(report.step);
  written->set_stall_ns(absl::ToInt64Nanoseconds(report.stall));
  written->set_error(std::string(report.status.message()));
  written->set_skipped(too_late || report.skipped);
  written->set_late(too_late);
  for (const CheckpointFile& file : report.files) {
    v1::CheckpointFile* out = written->add_files();
    out->set_name(file.name);
    out->set_bytes(file.bytes);
    out->set_crc32(file.crc32);
  }
  {
    absl::MutexLock lock(&mutex_);
    auto& newest = shares_[{device, written->skipped()}];
    newest[report.step] = message;
    if (newest.size() > kToldAgain) newest.erase(newest.begin());
    // One that comes too late to wait may have saved there all the same.
    const bool saved = report.status.ok() || (too_late && policy_.IsDue(report.step));
    if (!saved) failed_.insert(report.step);
  }
  report_(std::move(message));
}

void RunCheckpoints::RepeatShares() {
  std::vector<v1::ConnectRequest> shares;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [device, newest] : shares_) {
      for (const auto& [step, message] : newest) shares.push_back(message);
    }
  }
  for (v1::ConnectRequest& message : shares) report_(std::move(message));
}

void RunCheckpoints::Complete(const v1::WriteManifest& message,
                              std::shared_ptr<const Graph> graph) {
  if (graph == nullptr) {
    return ReportCompleted(
        message,
        absl::FailedPreconditionError("write_manifest: the run has no graph: it is not prepared"));
  }
  bool failed = false;
  {
    absl::MutexLock lock(&mutex_);
    const auto same = [&](const Order& order) { return order.message.step() == message.step(); };
    if (std::any_of(orders_.begin(), orders_.end(), same)) return;
    failed = failed_.contains(message.step());
    if (!failed && message.step() != written_) {
      orders_.push_back({message, std::move(graph)});
      if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
      return;
    }
  }
  ReportCompleted(message, failed ? absl::UnavailableError("it could not be completed, and its "
                                                           "shares are removed")
                                  : absl::OkStatus());
}

void RunCheckpoints::AwaitCompleted() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](std::deque<Order>* orders) { return orders->empty(); }, &orders_));
}

void RunCheckpoints::Loop() {
  while (true) {
    const Order* order = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](RunCheckpoints* self)
               ABSL_NO_THREAD_SAFETY_ANALYSIS { return self->closing_ || !self->orders_.empty(); },
          this));
      if (orders_.empty()) return;
      order = &orders_.front();  // Stays there: others only add at the end.
    }
    DoComplete(order->message, *order->graph);
    absl::MutexLock lock(&mutex_);
    orders_.pop_front();
  }
}

absl::Status RunCheckpoints::CompleteShares(const v1::WriteManifest& message, const Graph& graph) {
  const v1::JobSpec& spec = prepare_.spec();
  Manifest manifest;
  manifest.step = message.step();
  if (message.step() < 0 ||
      __builtin_mul_overflow(message.step(), spec.mini_batch(), &manifest.samples)) {
    return absl::InvalidArgumentError(
        absl::StrCat("write_manifest.step: ", message.step(), " is no step of the job"));
  }
  manifest.seed = spec.seed();
  manifest.shuffled = !spec.no_shuffle();
  manifest.optimizer = StateName(FromProto(spec.optimizer().kind()));
  manifest.graph = graph.name();
  manifest.graph_fingerprint = Fingerprint(graph);
  manifest.run = run_;
  manifest.generation = message.generation();
  for (const v1::CheckpointFile& file : message.files())
    manifest.files.push_back({file.name(), file.bytes(), file.crc32()});
  RETURN_IF_ERROR(CheckOwned());
  return CompleteCheckpoint(CheckpointDirectory(root_, message.step()), graph, std::move(manifest));
}

void RunCheckpoints::DoComplete(const v1::WriteManifest& message, const Graph& graph) {
  const v1::JobSpec& spec = prepare_.spec();
  const absl::Status status = CompleteShares(message, graph);
  // Writing may have taken so long that a later generation goes on from an older checkpoint.
  if (status.ok() && CheckOwned().ok()) {
    std::set<std::string> runs = {run_};
    const bool keeps_some = spec.has_checkpoints();
    // With those of the job that this one goes on from.
    if (goes_on_ && keeps_some) runs.insert(resume_->manifest().run);
    // Without a policy there are those that the planner asks for, and starts again from the newest.
    const int keep = keeps_some ? policy_.keep : 1;
    const auto to_stay = [this](int64_t step) { return !policy_.IsHalfway(step); };
    for (const std::string& left : PruneCheckpoints(root_, message.step(), keep, runs, to_stay))
      Log(LogLevel::kWarning, "an old checkpoint is not removed",
          {{"job", prepare_.job()}, {"generation", prepare_.generation()}, {"path", left}});
  }
  if (!status.ok()) {
    Log(LogLevel::kError, "checkpoint failed",
        {{"job", prepare_.job()},
         {"generation", prepare_.generation()},
         {"step", message.step()},
         {"why", status.message()}});
  }
  {
    absl::MutexLock lock(&mutex_);
    if (status.ok()) {
      written_ = message.step();
    } else {
      failed_.insert(message.step());
    }
  }
  ReportCompleted(message, status);
}

void RunCheckpoints::ReportCompleted(const v1::WriteManifest& message, const absl::Status& status) {
  v1::ConnectRequest answer;
  v1::CheckpointWritten* written = answer.mutable_checkpoint_written();
  written->set_job(prepare_.job());
  written->set_generation(prepare_.generation());
  written->set_step(message.step());
  written->set_error(std::string(status.message()));
  written->set_path(CheckpointDirectory(root_, message.step()));
  report_(std::move(answer));
}

}  // namespace stagewright
