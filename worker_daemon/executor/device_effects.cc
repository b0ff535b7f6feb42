#include "worker_daemon/executor/device_effects.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/memory/message_buffers.h"
#include "worker_daemon/effects/input_loads.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

OperatorWatch::Pass PassOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kBackward:
    case ActionKind::kBackwardWeight:
      return OperatorWatch::Pass::kBackward;
    case ActionKind::kBackwardInput:
      return OperatorWatch::Pass::kFirstHalf;
    default:
      return OperatorWatch::Pass::kForward;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceEffects>> DeviceEffects::Create(
    const Graph& graph, const Program& program, const DevicePlan& plan, ParameterStore& parameters,
    const Dataset& data, ParameterOptimizer* optimizer, Transport* transport,
    const ExecutorOptions& options) {
  const DeviceId device = plan.program->device;
  if (plan.communicates && transport == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device.value(), " talks to others and has no transport"));
  }
  if (program.training && optimizer == nullptr)
    return absl::InvalidArgumentError("a program that trains needs an optimizer");
  std::unique_ptr<DeviceEffects> effects(new DeviceEffects(transport, options));
  DeviceEffects& e = *effects;
  DeviceStreams* const streams = options.streams;
  StageOptions of_stages;
  of_stages.device = options.device;
  of_stages.seed = options.seed;
  of_stages.loss_weight = options.loss_weight;
  of_stages.precision = options.precision;
  ASSIGN_OR_RETURN(auto stages, DeviceStages::Create(graph, program, plan, parameters, of_stages));
  e.stages_.emplace(std::move(stages));
  e.types_.emplace(graph, options.precision);
  std::map<Bytes, int32_t> buffers = MessageBuffers(*e.types_, program, *plan.program);
  if (streams != nullptr) {
    const InputLoads loads(graph, program, plan);
    for (const auto& [bytes, count] : loads.Buffers(graph, InputPrefetch::kAhead))
      buffers[bytes] += count;
  }
  e.buffers_.emplace(std::move(buffers), options.device.is_cuda());
  ASSIGN_OR_RETURN(e.inputs_, StepInputs::Create(graph, program, plan, data, parameters,
                                                 *e.buffers_, options.device, streams));
  e.figures_.emplace(
      FigureOptions{graph.loss_reduction(), e.stages_->loss_share(), options.on_non_finite},
      *e.buffers_, streams,
      [&e](const StepAction& pass, const absl::Status& status) { e.machine_->Fail(pass, status); });
  e.routes_.emplace(*e.types_, program, device, transport, options.first_channel);
  const auto end = [&e](const StepAction& transfer, const absl::Status& status) {
    e.EndTransfer(transfer, status);
  };
  e.sends_.emplace(graph, program, *e.routes_, *e.buffers_, options.device, streams, end);
  e.receives_.emplace(*e.routes_, *e.buffers_, e.mailbox_, options.device, streams, end);
  e.passes_.emplace(StagePasses::Context{
      graph, program, plan, *e.stages_, *e.inputs_, e.mailbox_, *e.sends_, *e.figures_, optimizer,
      streams, [&e](const StepAction& pass, int32_t node) { e.machine_->Reach(pass, node); }});
  e.reductions_.emplace(graph, program, device, parameters, *e.figures_, transport, streams,
                        ReductionOptions{options.max_gradient_norm, options.on_non_finite,
                                         options.loss_scale, options.first_channel});
  e.times_.emplace(options.clock);
  return effects;
}

void DeviceEffects::BeginStep(const StepInput& input) {
  inputs_->Begin(input);
  time_operators_ = input.time_operators && options_.clock == nullptr;
  if (options_.loss_scale != nullptr) stages_->SetLossScale(options_.loss_scale->value());
  routes_->FindRoutes();
}

void DeviceEffects::EndRun() {
  sends_->Clear();
  mailbox_.Clear();
  stages_->Reset();
}

absl::StatusOr<StepOutput> DeviceEffects::TakeOutput(int64_t step, StepTrace trace) {
  RETURN_IF_ERROR(times_->Correct(trace));
  StepOutput output = figures_->Take(step);
  output.events = std::move(trace.events);
  output.operators = operators_.Take();
  return output;
}

absl::Status DeviceEffects::Compute(const StepAction& action) {
  const OperatorWatch::Scope watched(time_operators_ ? &operators_ : nullptr, action.action().stage,
                                     action.samples.range.size(), PassOf(action.action().kind));
  times_->Begin();
  absl::Status status;
  const absl::Status thrown = Guarded([&] { status = ComputeGuarded(action); });
  times_->End();
  return WithMemory(action, thrown.ok() ? status : thrown);
}

absl::Status DeviceEffects::ComputeGuarded(const StepAction& action) {
  const bool updates = action.action().kind == ActionKind::kOptimizerStep;
  if (updates && options_.on_non_finite == NonFinite::kStop) {
    figures_->AwaitAll();
    RETURN_IF_ERROR(machine_->failure());
  }
  return passes_->Run(action);
}

void DeviceEffects::StartTransfers(const std::vector<StepAction>& actions) {
  if (actions.empty()) return;
  const Transport::Batch batch(*transport_);
  for (const StepAction& action : actions) StartTransfer(action);
}

void DeviceEffects::MoveTransfers(absl::FunctionRef<bool()> ready) {
  if (transport_ != nullptr) transport_->Help(ready);
}

void DeviceEffects::StartTransfer(const StepAction& action) {
  const MemoryMeter::Scope counted(options_.memory);  // Transfers start on any thread.
  const DeviceStreams::Scope on_compute(options_.streams);
  const absl::Status thrown = Guarded([&] {
    if (IsSend(action.action().kind)) {
      sends_->Start(action);
    } else {
      receives_->Start(action);
    }
  });
  if (!thrown.ok()) EndTransfer(action, thrown);
}

void DeviceEffects::EndTransfer(const StepAction& transfer, const absl::Status& status) {
  machine_->End(transfer, WithMemory(transfer, status));
}

absl::Status DeviceEffects::RunCollective(const StepAction& action) {
  const MemoryMeter::Scope counted(options_.memory);
  const DeviceStreams::Scope on_compute(options_.streams);
  absl::Status status;
  const absl::Status thrown = Guarded([&] { status = reductions_->Run(action); });
  return WithMemory(action, thrown.ok() ? status : thrown);
}

void DeviceEffects::AbortTransfers(const absl::Status& status) {
  if (transport_ != nullptr) transport_->Abort(status);
}

std::string DeviceEffects::Details(const StepAction& action) const {
  return inputs_->InData(action);
}

absl::Status DeviceEffects::WithMemory(const StepAction& action, const absl::Status& status) const {
  if (!absl::IsResourceExhausted(status) || options_.memory == nullptr) return status;
  return Annotate(OutOfMemory(status, *options_.memory, options_.expected_memory),
                  absl::StrCat("stage ", action.action().stage.value()));
}

}  // namespace stagewright
