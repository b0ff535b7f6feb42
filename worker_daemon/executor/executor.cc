#include "worker_daemon/executor/executor.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/memory/message_buffers.h"
#include "worker_daemon/checkpoint/ownership.h"
#include "worker_daemon/torch/torch_guard.h"
#include "worker_daemon/update/gradient_norm.h"
#include "worker_daemon/update/gradient_reduction.h"

// This file: which action runs when. executor_actions.cc: what the compute actions do;
// executor_inputs.cc: what they take; executor_transfers.cc: sends and receives.

namespace stagewright {
namespace {

constexpr Nanos kPoll = 20 * kMicrosecond;

Nanos Now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + Nanos(time.tv_nsec);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(
    const Graph& graph, const Program& program, DeviceId device, ParameterStore& parameters,
    const Dataset& data, ParameterOptimizer* optimizer, Transport* transport,
    const ExecutorOptions& options) {
  std::unique_ptr<Executor> executor(
      new Executor(graph, program, parameters, data, optimizer, transport, options));
  ASSIGN_OR_RETURN(executor->plan_, MakeDevicePlan(graph, program, device));
  if (executor->plan_.communicates && transport == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device.value(), " talks to others and has no transport"));
  }
  if (program.training && optimizer == nullptr) {
    return absl::InvalidArgumentError("a program that trains needs an optimizer");
  }
  RETURN_IF_ERROR(executor->BuildStages());
  for (ParameterId id : parameters.ids()) {
    if (graph.parameter(id).trainable || graph.is_state(id)) executor->changing_.push_back(id);
  }
  executor->owned_ = ParametersToWrite(graph, program, device);
  executor->buffers_.emplace(MessageBuffers(graph, program, *executor->plan_.program),
                             options.device.is_cuda());
  executor->sequences_.resize(std::max(program.channels.size(), program.reductions.size()));
  if (executor->plan_.reduces)
    executor->reduction_thread_ = std::thread([e = executor.get()] { e->RunReductions(); });
  return executor;
}

Executor::~Executor() {
  {
    absl::MutexLock lock(&mutex_);
    if (cursor_.has_value()) Fail(absl::CancelledError("the run was left in its middle"));
    const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_.empty(); };
    mutex_.Await(absl::Condition(&idle));
    stopping_ = true;
  }
  if (reduction_thread_.joinable()) reduction_thread_.join();
}

absl::Status Executor::BuildStages() {
  StageOptions options;
  options.device = options_.device;
  options.training = program_.training;
  options.seed = options_.seed;
  options.mini_batch = program_.mini_batch;
  options.loss_weight = options_.loss_weight;
  options.precision = options_.precision;
  for (const StagePlan& stage : plan_.stages) {
    const ProgramStage& of_program = program_.stages[stage.stage.index()];
    options.update_batch = program_.asynchronous ? of_program.micro_batch : program_.mini_batch;
    options.split_backward = stage.split_backward;
    auto module = StageModule::Create(graph_, of_program, stage.outputs, parameters_, options);
    if (!module.ok()) {
      return Annotate(module.status(), absl::StrCat("device ", plan_.program->device.value(),
                                                    ", stage ", stage.stage.value()));
    }
    if (program_.asynchronous && (*module)->has_loss() && !graph_.totals().values.empty()) {
      loss_share_ =
          static_cast<double>(of_program.micro_batch) / static_cast<double>(program_.mini_batch);
    }
    modules_[stage.stage] = *std::move(module);
  }
  if (plan_.totals.values.empty()) return absl::OkStatus();
  auto totals = TotalsModule::Create(graph_, plan_.totals, parameters_, options_.device);
  if (!totals.ok()) {
    return Annotate(totals.status(), absl::StrCat("device ", plan_.program->device.value()));
  }
  totals_.emplace(*std::move(totals));
  return absl::OkStatus();
}

SampleRange Executor::SamplesOf(RunAction action) const {
  const SampleRange samples = ActionAt(action).samples;
  const int64_t before = StepOf(action.section) * program_.mini_batch;
  return {samples.begin + before, samples.end + before};
}

SampleRange Executor::InStep(SampleRange range) const {
  const int64_t before = StepOf(range) * program_.mini_batch;
  return {range.begin - before, range.end - before};
}

std::vector<std::string> Executor::BatchDependentNodes() const {
  std::vector<std::string> names;
  for (const auto& [stage, module] : modules_) {
    const ProgramStage& of_program = program_.stages[stage.index()];
    const bool whole =
        of_program.micro_batch == program_.mini_batch && of_program.devices.size() == 1;
    if (whole) continue;
    for (NodeId node : module->batch_dependent()) names.push_back(graph_.node(node).name);
  }
  return names;
}

absl::Status Executor::CheckInput(const StepInput& input) const {
  const auto bad = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("step ", input.step, ": ", what...));
  };
  const auto size = static_cast<int64_t>(input.samples.size());
  if (size != program_.mini_batch || input.valid < 1 || input.valid > program_.mini_batch ||
      (program_.training && input.valid != program_.mini_batch)) {
    return bad(size, " samples, ", input.valid, " of them valid, for a mini-batch of ",
               program_.mini_batch);
  }
  if (!plan_.has_sections) return absl::OkStatus();
  if (input.steps_left < 0 ||
      (input.steps_left > 0) != (input.next_samples.size() == input.samples.size()))
    return bad("the samples of the step after it are missing, or there is none");
  absl::MutexLock lock(&mutex_);
  if (cursor_.has_value() &&
      (input.step != first_step_ + step_ + 1 || input.steps_left + 1 != steps_left_))
    return bad("it does not go on with the run under way");
  return absl::OkStatus();
}

absl::StatusOr<StepOutput> Executor::RunStep(const StepInput& input) {
  const MemoryMeter::Scope counted(options_.memory);
  const DeviceStreams::Scope on_compute(options_.streams);
  RETURN_IF_ERROR(CheckInput(input));
  {
    absl::MutexLock lock(&mutex_);
    const bool goes_on = cursor_.has_value();
    step_ = goes_on ? step_ + 1 : 0;
    if (!goes_on) first_step_ = input.step;
    steps_left_ = plan_.has_sections ? input.steps_left : 0;
    deadline_ = input.deadline;
  }
  batches_[0].samples = input.samples;
  batches_[0].valid = input.valid;
  batches_[0].totals.reset();
  if (input.totals != nullptr) batches_[0].totals = *input.totals;
  if (options_.loss_scale != nullptr) {
    for (const auto& [stage, module] : modules_) module->SetLossScale(options_.loss_scale->value());
  }
  batches_[1].samples = input.next_samples;
  batches_[1].valid = input.valid;
  Begin();
  for (auto action = NextCompute(); action.has_value(); action = NextCompute()) {
    absl::Status status;
    DeviceClock::Mark start;
    if (options_.clock != nullptr) start = options_.clock->Record();
    const absl::Status thrown = Guarded([&] { status = Compute(*action); });
    if (options_.clock != nullptr) marks_.push_back({start, options_.clock->Record()});
    End(*action, thrown.ok() ? status : thrown);
  }
  RETURN_IF_ERROR(Finish());
  if (options_.clock != nullptr) RETURN_IF_ERROR(ReadClock());
  return std::exchange(batches_[0].output, std::exchange(batches_[1].output, {}));
}

void Executor::Begin() {
  FindWays();
  std::vector<RunAction> transfers;
  {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return;
    std::vector<RunAction> ready;
    if (!cursor_.has_value()) {
      cursor_.emplace();
      computes_left_ = 0;
      section_ = last_section_ = -1;
      if (plan_.has_sections) {
        ready = cursor_->Append(*plan_.prologue.program);
        computes_left_ += plan_.prologue.computes;
        section_ = 0;
      }
    }
    ++section_;
    AppendSections(ready);
    computes_left_ += SectionOf(section_).computes;
    Launch(std::move(ready), transfers);
  }
  for (RunAction action : transfers) StartTransfer(action);
}

const SectionPlan& Executor::SectionOf(int64_t section) const {
  if (!plan_.has_sections) return plan_.body;
  if (section == 0) return plan_.prologue;
  return section == last_section_ ? plan_.epilogue : plan_.body;
}

// Up to the section of the step after the one under way: its transfers may start early.
void Executor::AppendSections(std::vector<RunAction>& ready) {
  if (plan_.has_sections && steps_left_ <= 1) last_section_ = section_ + steps_left_;
  const int64_t last = section_ + std::min<int64_t>(steps_left_, 1);
  while (cursor_->sections() <= last) {
    for (RunAction action : cursor_->Append(*SectionOf(cursor_->sections()).program))
      ready.push_back(action);
  }
}

bool Executor::StepIsDone() const {
  return steps_left_ > 0 ? computes_left_ == 0 : cursor_->done();
}

bool Executor::ComputeMayGoOn() const {
  return !failure_.ok() || next_compute_.has_value() || StepIsDone();
}

std::optional<RunAction> Executor::NextCompute() {
  // Waking a thread that sleeps takes longer than most transfers within a machine.
  const Nanos patience = Now() + kPoll;
  while (!compute_is_due_.load(std::memory_order_relaxed) && Now() < patience)
    std::this_thread::yield();
  absl::MutexLock lock(&mutex_);
  if (!mutex_.AwaitWithDeadline(absl::Condition(this, &Executor::ComputeMayGoOn), deadline_)) {
    Fail(DeadlineExceeded());
  }
  if (!failure_.ok() || StepIsDone()) return std::nullopt;
  compute_is_due_.store(false, std::memory_order_relaxed);
  return std::exchange(next_compute_, std::nullopt);
}

absl::Status Executor::DeadlineExceeded() const {
  std::vector<std::string> waiting;
  for (RunAction action : running_) waiting.push_back(InWords(ActionAt(action)));
  return absl::DeadlineExceededError(
      absl::StrCat("device ", plan_.program->device.value(), ": step ", first_step_ + step_,
                   " did not finish in time; waiting for ",
                   waiting.empty() ? "nothing" : absl::StrJoin(waiting, ", ")));
}

void Executor::Launch(std::vector<RunAction> ready, std::vector<RunAction>& transfers) {
  const Nanos start = ready.empty() ? 0 : Now();
  for (RunAction action : ready) {
    cursor_->Start(action);
    starts_[action] = start;
    const ActionKind kind = ActionAt(action).kind;
    if (IsCompute(kind)) {
      compute_is_due_.store(true, std::memory_order_relaxed);
      next_compute_ = action;  // The compute lane is idle, so there is no other.
      continue;
    }
    running_.insert(action);
    if (kind == ActionKind::kAllReduce) {
      reductions_.push_back(action);
    } else {
      transfers.push_back(action);
    }
  }
}

void Executor::End(RunAction action, absl::Status status) {
  const Nanos end = Now();
  std::vector<RunAction> transfers;
  {
    absl::MutexLock lock(&mutex_);
    running_.erase(action);
    const int64_t step = first_step_ + StepOf(action.section);
    if (absl::IsResourceExhausted(status) && options_.memory != nullptr) {
      status = Annotate(OutOfMemory(status, *options_.memory, options_.expected_memory),
                        absl::StrCat("stage ", ActionAt(action).stage.value()));
    }
    if (!status.ok()) {
      Fail(InAction(status, action));
    }
    if (!failure_.ok()) return;
    const auto start = starts_.find(action);
    events_.push_back(
        {plan_.program->device, ActionAt(action), static_cast<int32_t>(step), start->second, end});
    ended_.push_back(action);
    starts_.erase(start);
    if (IsCompute(ActionAt(action).kind)) --computes_left_;
    Launch(cursor_->Finish(action), transfers);
  }
  for (RunAction next : transfers) StartTransfer(next);
}

absl::Status Executor::InAction(const absl::Status& status, RunAction action) const {
  return Annotate(status, absl::StrCat("device ", plan_.program->device.value(), ", step ",
                                       first_step_ + StepOf(action.section), ", ",
                                       InWords(ActionAt(action)), SamplesInData(action)));
}

// Which samples of the data set a pass ran, where this device reads any: " (3, 1, 4 of the data)".
std::string Executor::SamplesInData(RunAction action) const {
  constexpr size_t kShown = 8;
  if (plan_.inputs.empty() || !IsCompute(ActionAt(action).kind)) return "";
  const SampleRange range = SamplesOf(action);
  const int64_t batch = StepOf(range) - step_;
  if (range.empty() || batch < 0 || batch >= static_cast<int64_t>(batches_.size())) return "";
  const SampleRange in_step = InStep(range);
  const auto& all = batches_[batch].samples;
  if (in_step.end > static_cast<int64_t>(all.size())) return "";
  const auto samples =
      all.subspan(static_cast<size_t>(in_step.begin), static_cast<size_t>(in_step.size()));
  return absl::StrCat(" (", absl::StrJoin(samples.first(std::min(kShown, samples.size())), ", "),
                      samples.size() > kShown ? ", ... of the data)" : " of the data)");
}

void Executor::Fail(absl::Status status) {
  if (!failure_.ok()) return;
  failure_ = std::move(status);
  compute_is_due_.store(true, std::memory_order_relaxed);
  // All-reduces that have not begun never will.
  for (RunAction action : reductions_) running_.erase(action);
  reductions_.clear();
  if (transport_ != nullptr) transport_->Abort(failure_);
}

void Executor::Abort(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  Fail(status.ok() ? absl::CancelledError("aborted") : status);
}

absl::Status Executor::Finish() {
  Settle();
  absl::MutexLock lock(&mutex_);
  if (failure_.ok() && steps_left_ > 0) {
    batches_[0].output.events = std::exchange(events_, {});
    event_actions_ = std::exchange(ended_, {});
    return absl::OkStatus();
  }
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_.empty(); };
  mutex_.Await(absl::Condition(&idle));
  if (failure_.ok() && !program_.asynchronous) {
    const absl::Status updated = Guarded([&] { UpdateStates(); });
    if (!updated.ok()) Fail(updated);
  }
  cursor_.reset();
  results_.clear();
  starts_.clear();
  mailbox_.Clear();
  next_compute_.reset();
  batches_[0].output.events = std::exchange(events_, {});
  event_actions_ = std::exchange(ended_, {});
  for (const auto& [stage, module] : modules_) module->Reset();
  return failure_;
}

// The host's clock tells when compute actions were queued. They get the device's times instead, and
// what waits for one of them, and was queued behind it, begins no earlier than that has ended.
absl::Status Executor::ReadClock() {
  std::vector<TraceEvent>& events = batches_[0].output.events;
  std::map<RunAction, Nanos> ends;
  const auto marks = std::exchange(marks_, {});
  auto mark = marks.begin();
  for (size_t i = 0; i < events.size(); ++i) {
    if (!IsCompute(events[i].action.kind)) continue;
    ASSIGN_OR_RETURN(events[i].start, options_.clock->TimeOf(mark->front()));
    ASSIGN_OR_RETURN(events[i].end, options_.clock->TimeOf(mark->back()));
    ends[event_actions_[i]] = events[i].end;
    ++mark;
  }
  for (size_t i = 0; i < events.size(); ++i) {
    if (IsCompute(events[i].action.kind)) continue;
    const RunAction action = event_actions_[i];
    for (int32_t before : (*SectionOf(action.section).program)[action.index].after) {
      const auto end = ends.find({action.section, before});
      if (end != ends.end()) events[i].start = std::max(events[i].start, end->second);
    }
    events[i].end = std::max(events[i].end, events[i].start);
  }
  return options_.clock->Align();
}

absl::Status Executor::ReduceNorm(RunAction action) {
  Settle();
  const Reduction& reduction = program_.reductions[ActionAt(action).channel];
  // The compute lane adds to the loss no more: the sum waits for all its backward passes.
  StepOutput& output = batches_[0].output;
  LossScale* const scale = options_.loss_scale;
  const NonFinite policy = scale == nullptr ? options_.on_non_finite : NonFinite::kSkip;
  ASSIGN_OR_RETURN(
      const double norm,
      ClipGradientNorm(reduction, owned_, options_.max_gradient_norm, parameters_, transport_,
                       TagOf(ActionAt(action)), absl::InfiniteFuture(), policy,
                       std::isfinite(output.loss), scale == nullptr ? 1 : scale->value()));
  const bool finite = std::isfinite(norm);
  output.skipped = policy == NonFinite::kSkip && !finite;
  if (scale == nullptr) return absl::OkStatus();
  if (!finite && scale->exhausted() && options_.on_non_finite == NonFinite::kStop) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the norm of the gradients is ", norm, " with a loss scale of ", scale->value(), ", too"));
  }
  scale->Update(finite);
  return absl::OkStatus();
}

void Executor::RunReductions() {
  const MemoryMeter::Scope counted(options_.memory);
  const DeviceStreams::Scope on_compute(options_.streams);
  const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !reductions_.empty();
  };
  for (;;) {
    RunAction action;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&woken));
      if (reductions_.empty()) return;
      action = reductions_.front();
      reductions_.pop_front();
    }
    absl::Status status;
    const absl::Status thrown = Guarded([&] {
      // Without a deadline of its own: when the step's passes, RunStep aborts the transport.
      const Reduction& reduction = program_.reductions[ActionAt(action).channel];
      if (reduction.gradient_norm) {
        status = ReduceNorm(action);
        return;
      }
      status = ReduceGradients(graph_, reduction, parameters_, *transport_, TagOf(ActionAt(action)),
                               absl::InfiniteFuture(), options_.streams);
    });
    End(action, thrown.ok() ? status : thrown);
  }
}

}  // namespace stagewright
