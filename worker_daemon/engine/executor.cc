#include "worker_daemon/engine/executor.h"

#include <time.h>

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker_daemon/engine/gradient_reduction.h"
#include "worker_daemon/engine/torch_guard.h"

// This file: which action runs when. executor_actions.cc: what the actions do.

namespace stagewright {
namespace {

Nanos Now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(
    const Graph& graph, const Program& program, DeviceId device, const ParameterStore& parameters,
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
  executor->sequences_.resize(std::max(program.channels.size(), program.reductions.size()));
  for (const ProgramAction& entry : executor->plan_.program->body) {
    if (entry.action.kind != ActionKind::kAllReduce) continue;
    executor->reduction_thread_ = std::thread([e = executor.get()] { e->RunReductions(); });
    break;
  }
  return executor;
}

Executor::~Executor() {
  {
    absl::MutexLock lock(&mutex_);
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
  for (const StagePlan& stage : plan_.stages) {
    auto module = StageModule::Create(graph_, program_.stages[stage.stage.index()], stage.outputs,
                                      parameters_, options);
    if (!module.ok()) {
      return Annotate(module.status(), absl::StrCat("device ", plan_.program->device.value(),
                                                    ", stage ", stage.stage.value()));
    }
    modules_[stage.stage] = *std::move(module);
  }
  return absl::OkStatus();
}

std::vector<std::string> Executor::BatchDependentNodes() const {
  std::vector<std::string> names;
  for (const auto& [stage, module] : modules_) {
    for (NodeId node : module->batch_dependent()) names.push_back(graph_.node(node).name);
  }
  return names;
}

absl::StatusOr<StepOutput> Executor::RunStep(const StepInput& input) {
  if (static_cast<int64_t>(input.samples.size()) != program_.mini_batch || input.valid < 1 ||
      input.valid > program_.mini_batch ||
      (program_.training && input.valid != program_.mini_batch)) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", input.step, ": ", input.samples.size(), " samples, ", input.valid,
                     " of them valid, for a mini-batch of ", program_.mini_batch));
  }
  input_ = input;
  output_ = {};
  Begin();
  for (int32_t index = NextCompute(); index >= 0; index = NextCompute()) {
    absl::Status status;
    const absl::Status thrown = Guarded([&] { status = Compute(index); });
    End(index, thrown.ok() ? status : thrown);
  }
  RETURN_IF_ERROR(Finish());
  return std::move(output_);
}

void Executor::Begin() {
  std::vector<int32_t> transfers;
  {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return;
    events_.clear();
    results_.assign(plan_.actions.size(), Result());
    starts_.assign(plan_.actions.size(), 0);
    cursor_.emplace(plan_.program->body);
    const std::vector<int32_t> ready = cursor_->Ready();  // A copy: starting changes it.
    Launch(ready, transfers);
  }
  for (int32_t index : transfers) StartTransfer(index);
}

bool Executor::ComputeMayGoOn() const {
  return !failure_.ok() || next_compute_ >= 0 || cursor_->done();
}

int32_t Executor::NextCompute() {
  absl::MutexLock lock(&mutex_);
  if (!mutex_.AwaitWithDeadline(absl::Condition(this, &Executor::ComputeMayGoOn),
                                input_.deadline)) {
    Fail(DeadlineExceeded());
  }
  if (!failure_.ok()) return -1;
  return std::exchange(next_compute_, -1);
}

absl::Status Executor::DeadlineExceeded() const {
  std::vector<std::string> waiting;
  for (int32_t index : running_) waiting.push_back(ToString(ActionAt(index)));
  return absl::DeadlineExceededError(
      absl::StrCat("device ", plan_.program->device.value(), ": step ", input_.step,
                   " did not finish in time; waiting for ",
                   waiting.empty() ? "nothing" : absl::StrJoin(waiting, ", ")));
}

void Executor::Launch(const std::vector<int32_t>& ready, std::vector<int32_t>& transfers) {
  const Nanos start = ready.empty() ? 0 : Now();
  for (int32_t index : ready) {
    cursor_->Start(index);
    starts_[index] = start;
    const ActionKind kind = ActionAt(index).kind;
    if (IsCompute(kind)) {
      next_compute_ = index;  // The compute lane is idle, so there is no other.
      continue;
    }
    running_.insert(index);
    if (kind == ActionKind::kAllReduce) {
      reductions_.push_back(index);
    } else {
      transfers.push_back(index);
    }
  }
}

void Executor::End(int32_t index, absl::Status status) {
  const Nanos end = Now();
  std::vector<int32_t> transfers;
  {
    absl::MutexLock lock(&mutex_);
    running_.erase(index);
    if (!status.ok()) {
      Fail(Annotate(status, absl::StrCat("device ", plan_.program->device.value(), ", step ",
                                         input_.step, ", ", ToString(ActionAt(index)))));
    }
    if (!failure_.ok()) return;
    events_.push_back({plan_.program->device, ActionAt(index), static_cast<int32_t>(input_.step),
                       starts_[index], end});
    Launch(cursor_->Finish(index), transfers);
  }
  for (int32_t next : transfers) StartTransfer(next);
}

void Executor::Fail(absl::Status status) {
  if (!failure_.ok()) return;
  failure_ = std::move(status);
  // All-reduces that have not begun never will.
  for (int32_t index : reductions_) running_.erase(index);
  reductions_.clear();
  if (transport_ != nullptr) transport_->Abort(failure_);
}

void Executor::Abort(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  Fail(status.ok() ? absl::CancelledError("aborted") : status);
}

absl::Status Executor::Finish() {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_.empty(); };
  mutex_.Await(absl::Condition(&idle));
  results_.clear();
  mailbox_.Clear();
  next_compute_ = -1;
  if (failure_.ok()) {
    output_.events = std::move(events_);
    return absl::OkStatus();
  }
  for (const auto& [stage, module] : modules_) module->Reset();
  return failure_;
}

void Executor::RunReductions() {
  const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !reductions_.empty();
  };
  for (;;) {
    int32_t index;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&woken));
      if (reductions_.empty()) return;
      index = reductions_.front();
      reductions_.pop_front();
    }
    absl::Status status;
    const absl::Status thrown = Guarded([&] {
      // Without a deadline of its own: when the step's passes, RunStep aborts the transport.
      status = ReduceGradients(graph_, program_.reductions[ActionAt(index).channel], parameters_,
                               *transport_, TagOf(ActionAt(index)), absl::InfiniteFuture());
    });
    End(index, thrown.ok() ? status : thrown);
  }
}

void Executor::StartTransfer(int32_t index) {
  const absl::Status thrown = Guarded([&] {
    if (IsSend(ActionAt(index).kind)) {
      StartSend(index);
    } else {
      StartReceive(index);
    }
  });
  if (!thrown.ok()) End(index, thrown);
}

Tag Executor::TagOf(const Action& action) {
  Traffic traffic = Traffic::kReduction;
  if (action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kReceiveActivation)
    traffic = Traffic::kActivation;
  if (action.kind == ActionKind::kSendGradient || action.kind == ActionKind::kReceiveGradient)
    traffic = Traffic::kGradient;
  // Actions of one lane start one at a time, so nothing else touches this count.
  const uint32_t sequence = sequences_[action.channel][static_cast<size_t>(traffic)]++;
  return {options_.first_channel + static_cast<uint32_t>(action.channel), traffic,
          sequence % (1u << 20)};
}

void Executor::StartSend(int32_t index) {
  const Action& action = ActionAt(index);
  const Channel& channel = program_.channels[action.channel];
  const Direction direction =
      action.kind == ActionKind::kSendActivation ? Direction::kActivation : Direction::kGradient;
  const int32_t producer = plan_.actions[index].producer;
  std::vector<at::Tensor> tensors;
  {
    absl::MutexLock lock(&mutex_);
    Result& result = results_[producer];
    tensors = result.tensors;
    if (--result.sends_left == 0) result.tensors.clear();
  }
  auto message = PackMessage(action, direction, ActionAt(producer).samples, tensors);
  if (!message.ok()) return End(index, message.status());
  const int peer =
      direction == Direction::kActivation ? channel.target.value() : channel.source.value();
  const at::Tensor& buffer = message->buffer;
  const void* data = buffer.data_ptr();
  transport_->Send(peer, TagOf(action), data, static_cast<size_t>(message->bytes),
                   // Keeps the buffer until it was sent.
                   [this, index, kept = buffer](absl::Status status) mutable {
                     kept = at::Tensor();
                     End(index, std::move(status));
                   });
}

void Executor::StartReceive(int32_t index) {
  const Action& action = ActionAt(index);
  const Channel& channel = program_.channels[action.channel];
  const Direction direction =
      action.kind == ActionKind::kReceiveActivation ? Direction::kActivation : Direction::kGradient;
  const MessageLayout layout(graph_, ValuesOf(action.channel, direction), action.samples.size());
  const at::Tensor buffer = layout.Allocate();
  const int peer =
      direction == Direction::kActivation ? channel.source.value() : channel.target.value();
  transport_->Receive(peer, TagOf(action), buffer.data_ptr(), static_cast<size_t>(layout.bytes()),
                      [this, index, direction, layout, buffer](absl::Status status) {
                        if (status.ok()) {
                          status = Guarded([&] {
                            const Action& received = ActionAt(index);
                            mailbox_.Put(
                                received.channel, direction,
                                {received.samples, layout.Unpack(buffer, options_.device)});
                          });
                        }
                        End(index, std::move(status));
                      });
}

}  // namespace stagewright
