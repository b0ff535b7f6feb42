#include "worker_daemon/executor/executor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_daemon/executor/device_effects.h"
#include "worker_daemon/torch/torch_guard.h"
#include "worker_daemon/transport/shared_memory.h"

namespace stagewright {

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(
    const Graph& graph, const Program& program, DeviceId device, ParameterStore& parameters,
    const Dataset& data, ParameterOptimizer* optimizer, Transport* transport,
    const ExecutorOptions& options) {
  ASSIGN_OR_RETURN(DevicePlan plan, MakeDevicePlan(graph, program, device));
  std::unique_ptr<Executor> executor(new Executor(program, std::move(plan), options));
  ASSIGN_OR_RETURN(executor->effects_,
                   DeviceEffects::Create(graph, program, executor->plan_, parameters, data,
                                         optimizer, transport, options));
  executor->machine_ = std::make_unique<StepMachine>(program, executor->plan_, *executor->effects_);
  executor->effects_->Attach(*executor->machine_);
  return executor;
}

Executor::Executor(const Program& program, DevicePlan plan, const ExecutorOptions& options)
    : program_(program), plan_(std::move(plan)), options_(options) {}

Executor::~Executor() = default;

absl::StatusOr<StepOutput> Executor::RunStep(const StepInput& input) {
  const MemoryMeter::Scope counted(options_.memory);
  const DeviceStreams::Scope on_compute(options_.streams);
  RETURN_IF_ERROR(effects_->CheckInput(input));
  const StepOfJob step = {input.step, input.deadline, plan_.has_sections ? input.steps_left : 0};
  if (!machine_->MayRun(step)) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", input.step, ": it does not go on with the run under way"));
  }
  effects_->BeginStep(input);
  machine_->Run(step);
  effects_->AwaitFigures();
  absl::Status status = machine_->AwaitEnd();
  if (absl::IsDeadlineExceeded(status))
    status = NotingFullSharedMemory(status, SharedMemoryOfUcx());
  if (!machine_->in_run()) {
    if (status.ok() && !program_.asynchronous) {
      status = Guarded([&] { effects_->stages().UpdateStates(); });
      if (!status.ok()) Abort(status);
    }
    effects_->EndRun();
  }
  StepTrace trace = machine_->TakeTrace();
  RETURN_IF_ERROR(status);
  return effects_->TakeOutput(input.step, std::move(trace));
}

void Executor::GatherAhead(std::span<const int64_t> samples) {
  effects_->inputs().GatherAhead(samples);
}

absl::Status Executor::CheckPartialBatches() const {
  return effects_->stages().CheckPartialBatches();
}

absl::StatusOr<std::vector<at::Tensor>> Executor::TotalsOf(std::span<const int64_t> samples) {
  return effects_->inputs().TotalsOver(samples);
}

std::vector<std::string> Executor::BatchDependentNodes() const {
  return effects_->stages().BatchDependentNodes();
}

}  // namespace stagewright
