#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker_daemon/executor/executor.h"
#include "worker_daemon/torch/tensor_types.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

bool Reads(const std::vector<ValueRef>& values, ValueRef value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

const std::vector<ValueRef>& Executor::ValuesOf(int32_t channel, Direction direction) const {
  const Channel& of = program_.channels[channel];
  return direction == Direction::kActivation ? of.values : of.gradient_values;
}

absl::Status Executor::Compute(RunAction action) {
  const StageId stage = ActionAt(action).stage;
  const SampleRange range = SamplesOf(action);
  switch (ActionAt(action).kind) {
    case ActionKind::kForward:
      return RunForward(action);
    case ActionKind::kRecompute:
      return RunRecompute(stage, range);
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      return RunBackward(action);
    case ActionKind::kBackwardWeight:
      return ModuleOf(stage).BackwardWeight(range);
    case ActionKind::kOptimizerStep:
      return Update(PlanAt(action).updates);
    default:
      return absl::InternalError("not a compute action");
  }
}

absl::Status Executor::Update(const std::vector<ParameterId>& parameters) {
  if (options_.on_non_finite == NonFinite::kStop) {
    Settle();
    absl::MutexLock lock(&mutex_);
    RETURN_IF_ERROR(failure_);
  }
  for (const auto& [stage, module] : modules_) module->KeepVersion();
  std::vector<ParameterId> used;
  for (ParameterId id : parameters) {
    if (std::any_of(modules_.begin(), modules_.end(),
                    [&](const auto& entry) { return entry.second->Uses(id); }))
      used.push_back(id);
  }
  parameters_.Renew(used);
  optimizer_->Step(parameters, first_step_ + step_);
  return absl::OkStatus();
}

// Every pass of a step reads the values that the step began with. In an asynchronous program each
// micro-batch is a batch of its own and reads what the one before it left; those in flight keep
// what they have read.
void Executor::UpdateStates() {
  for (const auto& [stage, module] : modules_) {
    for (auto& [id, value] : module->TakeStates()) {
      if (program_.asynchronous) {
        parameters_.Replace(id, std::move(value));
      } else {
        parameters_.Assign(id, value);
      }
    }
  }
}

absl::Status Executor::RunRecompute(StageId stage, SampleRange range) {
  StageModule& module = ModuleOf(stage);
  std::vector<at::Tensor> inputs;
  for (InputId input : module.inputs()) {
    ASSIGN_OR_RETURN(at::Tensor tensor, LoadInput(input, range));
    inputs.push_back(std::move(tensor));
  }
  return module.Recompute(first_step_ + StepOf(range), range, std::move(inputs));
}

absl::Status Executor::RunForward(RunAction action) {
  const StageId stage = ActionAt(action).stage;
  const SampleRange range = SamplesOf(action);
  const int64_t step = first_step_ + StepOf(range);
  StageModule& module = ModuleOf(stage);
  ASSIGN_OR_RETURN(StageModule::Tensors tensors, Collect(stage, range));
  StageModule::Keep keep = StageModule::Keep::kNothing;
  if (program_.training && program_.stages[stage.index()].has_backward) {
    keep = PlanAt(action).recomputed ? StageModule::Keep::kInputs : StageModule::Keep::kGraph;
  }
  const SampleRange valid = ValidOf(range);
  StageModule::Forwarded result;
  if (module.has_loss() && valid != range) {
    RETURN_IF_ERROR(EvaluatePartly(action, tensors, range, valid));
    if (module.outputs().empty()) {
      KeepResult(action, {});
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(result, module.Forward(step, range, std::move(tensors), keep));
  } else {
    ASSIGN_OR_RETURN(result, module.Forward(step, range, std::move(tensors), keep));
    RETURN_IF_ERROR(Account(action, result, range));
  }
  if (program_.asynchronous) UpdateStates();
  IsolateFromParameters(result.outputs);
  RETURN_IF_ERROR(HandOver(action, Direction::kActivation, result.outputs));
  KeepResult(action, std::move(result.outputs));
  return absl::OkStatus();
}

SampleRange Executor::ValidOf(SampleRange range) const {
  const int64_t begin = StepOf(range) * program_.mini_batch;
  return Intersect(range, {begin, begin + BatchOf(range).valid});
}

// The loss of a micro-batch that is filled up counts its valid samples only, so they run alone.
absl::Status Executor::EvaluatePartly(RunAction action, const StageModule::Tensors& tensors,
                                      SampleRange range, SampleRange valid) {
  StageModule& module = ModuleOf(ActionAt(action).stage);
  if (valid.empty()) return absl::OkStatus();
  StageModule::Tensors cut;
  cut.totals = tensors.totals;
  for (size_t i = 0; i < tensors.received.size(); ++i) {
    const TensorMeta& meta = graph_.meta(module.received()[i]);
    if (!meta.DependsOnBatch()) {
      cut.received.push_back(tensors.received[i]);
      continue;
    }
    ASSIGN_OR_RETURN(at::Tensor part, Cut(tensors.received[i], meta, range, valid));
    cut.received.push_back(std::move(part));
  }
  for (size_t i = 0; i < tensors.inputs.size(); ++i) {
    const TensorMeta& meta = graph_.input(module.inputs()[i]).meta;
    ASSIGN_OR_RETURN(at::Tensor part, Cut(tensors.inputs[i], meta, range, valid));
    cut.inputs.push_back(std::move(part));
  }
  ASSIGN_OR_RETURN(const StageModule::Forwarded result,
                   module.Forward(first_step_ + StepOf(valid), valid, std::move(cut),
                                  StageModule::Keep::kNothing));
  return Account(action, result, valid);
}

absl::Status Executor::CheckPartialBatches() const {
  for (const auto& [stage, module] : modules_) {
    if (module->has_loss()) {
      for (ValueRef value : module->received()) {
        const TensorMeta& meta = graph_.meta(value);
        if (!meta.mixed && (!meta.DependsOnBatch() || meta.IsBatched())) continue;
        return absl::InvalidArgumentError(
            absl::StrCat(NameOf(graph_.node(value.node)),
                         " does not have its samples side by side, so it cannot be cut"));
      }
    } else if (!module->batch_dependent().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(graph_.node(module->batch_dependent().front())),
                       " compares samples, so those that fill up the last batch would count"));
    }
  }
  return absl::OkStatus();
}

absl::Status Executor::RunBackward(RunAction action) {
  const StageId stage = ActionAt(action).stage;
  const SampleRange range = SamplesOf(action);
  StageModule& module = ModuleOf(stage);
  ASSIGN_OR_RETURN(std::vector<at::Tensor> gradients, CollectGradients(stage, range));
  auto result = ActionAt(action).kind == ActionKind::kBackward
                    ? module.Backward(range, gradients)
                    : module.BackwardInput(range, gradients);
  RETURN_IF_ERROR(result.status());
  gradients.clear();
  IsolateGradients(*result);
  RETURN_IF_ERROR(HandOver(action, Direction::kGradient, *result));
  KeepResult(action, *std::move(result));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<at::Tensor>> Executor::PiecesOf(
    int32_t channel, Direction direction, SampleRange whole, SampleRange piece,
    const std::vector<at::Tensor>& tensors) const {
  const Channel& of = program_.channels[channel];
  const StageModule& module = *modules_.at(direction == Direction::kActivation ? of.from : of.to);
  const std::vector<ValueRef>& made =
      direction == Direction::kActivation ? module.outputs() : module.received();
  std::vector<at::Tensor> pieces;
  for (ValueRef value : ValuesOf(channel, direction)) {
    if (!Reads(made, value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("channel ", channel, " carries ", NameOf(graph_.node(value.node)),
                       ", which the stages it joins do not exchange"));
    }
    auto cut = Cut(tensors[IndexOf(made, value)], graph_.meta(value), whole, piece);
    if (!cut.ok()) return Annotate(cut.status(), NameOf(graph_.node(value.node)));
    pieces.push_back(*std::move(cut));
  }
  return pieces;
}

// An optimizer writes to parameters and the end of a step to buffers, perhaps while a reader of the
// values that leave still runs.
void Executor::IsolateFromParameters(std::vector<at::Tensor>& outputs) const {
  for (at::Tensor& output : outputs) {
    const bool shared = std::any_of(changing_.begin(), changing_.end(), [&](ParameterId id) {
      return parameters_[id].storage().is_alias_of(output.storage());
    });
    if (shared) output = output.clone();
  }
}

// Autograd may take memory that it shares with a gradient it returned as a parameter's, and adds to
// that in later passes.
void Executor::IsolateGradients(std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& gradient : gradients) {
    if (gradient.defined() && gradient.storage().use_count() > 1) gradient = gradient.clone();
  }
}

absl::Status Executor::HandOver(RunAction action, Direction direction,
                                const std::vector<at::Tensor>& tensors) {
  for (const LocalPiece& local : PlanAt(action).local) {
    ASSIGN_OR_RETURN(
        std::vector<at::Tensor> pieces,
        PiecesOf(local.channel, direction, ActionAt(action).samples, local.samples, tensors));
    mailbox_.Put(local.channel, direction, {local.samples, std::move(pieces)});
  }
  return absl::OkStatus();
}

void Executor::KeepResult(RunAction action, std::vector<at::Tensor> tensors) {
  const size_t sends = PlanAt(action).sends.size();
  if (sends == 0) return;
  DeviceStreams::Mark made;
  if (options_.streams != nullptr) made = options_.streams->Record();
  absl::MutexLock lock(&mutex_);
  results_[action] = {std::move(tensors), sends, std::move(made)};
}

absl::Status Executor::Account(RunAction action, const StageModule::Forwarded& result,
                               SampleRange range) {
  if (!result.loss.defined() && !result.prediction.defined()) return absl::OkStatus();
  Figures figures{.range = range, .has_loss = result.loss.defined()};
  const std::optional<InputId> target = ClassTarget(graph_);
  const SampleRange valid = ValidOf(range);
  at::Tensor correct;
  const at::NoGradGuard no_grad;
  const auto compare = [&]() -> absl::Status {
    if (!result.prediction.defined() || !target.has_value() || valid.empty())
      return absl::OkStatus();
    const TensorMeta& meta = graph_.meta(*graph_.prediction());
    ASSIGN_OR_RETURN(const at::Tensor prediction, Cut(result.prediction, meta, range, valid));
    ASSIGN_OR_RETURN(const at::Tensor classes, LoadInput(*target, valid));
    correct = prediction.argmax(1).eq(classes).sum();
    figures.predicted = classes.numel();
    return absl::OkStatus();
  };
  if (options_.streams != nullptr) {
    RETURN_IF_ERROR(compare());
    if (figures.has_loss || correct.defined()) Expect(action, figures, result.loss, correct);
    return absl::OkStatus();
  }
  if (figures.has_loss) figures.loss = result.loss.item<double>();
  RETURN_IF_ERROR(CheckLoss(figures.loss));
  RETURN_IF_ERROR(compare());
  if (correct.defined()) figures.correct = correct.item<int64_t>();
  absl::MutexLock lock(&mutex_);
  Count(figures);
  return absl::OkStatus();
}

absl::Status Executor::CheckLoss(double loss) const {
  if (std::isfinite(loss) || options_.on_non_finite != NonFinite::kStop) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the loss is ", loss));
}

void Executor::Count(const Figures& figures) {
  Batch& batch = BatchOf(figures.range);
  StepOutput& output = batch.output;
  if (figures.has_loss) {
    const auto samples = static_cast<double>(figures.range.size());
    const bool mean = graph_.loss_reduction() == LossReduction::kMean;
    output.loss += mean ? figures.loss * samples / static_cast<double>(batch.valid)
                        : figures.loss * loss_share_;
    output.loss_samples += figures.range.size();
  }
  output.correct += figures.correct;
  output.predicted += figures.predicted;
}

// Asks the device for the figures of a pass that is queued. A loss that must stop the job does so
// when it comes; the others are counted in the order of the passes, so that sums do not depend on
// when they come.
void Executor::Expect(RunAction action, Figures figures, const at::Tensor& loss,
                      const at::Tensor& correct) {
  Figures* entry = nullptr;  // In a deque that only grows and shrinks at its ends.
  {
    absl::MutexLock lock(&mutex_);
    entry = &expected_.emplace_back(figures);
    ++outstanding_;
  }
  const at::Tensor host = buffers_->Take(2 * sizeof(double));
  const auto make = [loss, correct] {
    const at::NoGradGuard no_grad;
    const at::Tensor none = at::zeros({}, (loss.defined() ? loss : correct).options());
    return at::stack({(loss.defined() ? loss : none).reshape({}).to(at::kDouble),
                      (correct.defined() ? correct : none).to(at::kDouble)})
        .view(at::kByte);
  };
  const auto come = [this, action, entry, host](absl::Status status) {
    const auto* values = static_cast<const double*>(host.data_ptr());
    absl::MutexLock lock(&mutex_);
    --outstanding_;
    if (status.ok()) {
      entry->loss = values[0];
      entry->correct = static_cast<int64_t>(values[1]);
      if (entry->has_loss) status = CheckLoss(values[0]);
    }
    if (!status.ok()) Fail(InAction(status, action));
  };
  const absl::Status thrown =
      Guarded([&] { options_.streams->CopyOut(options_.streams->Record(), make, host, come); });
  if (!thrown.ok()) come(thrown);
}

// Waits for the figures of all passes so far and counts them.
void Executor::Settle() {
  absl::MutexLock lock(&mutex_);
  if (expected_.empty()) return;
  const auto come = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return outstanding_ == 0; };
  mutex_.Await(absl::Condition(&come));
  for (const Figures& figures : expected_) Count(figures);
  expected_.clear();
}

}  // namespace stagewright
