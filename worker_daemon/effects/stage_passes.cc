#include "worker_daemon/effects/stage_passes.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

namespace stagewright {
namespace {

// Autograd may take memory that it shares with a gradient it returned as a parameter's, and adds to
// that in later passes.
void IsolateGradients(std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& gradient : gradients) {
    if (gradient.defined() && gradient.storage().use_count() > 1) gradient = gradient.clone();
  }
}

}  // namespace

absl::Status StagePasses::Run(const StepAction& action) {
  switch (action.action().kind) {
    case ActionKind::kForward:
      return Forward(action);
    case ActionKind::kRecompute:
      return Recompute(action);
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      return Backward(action);
    case ActionKind::kBackwardWeight:
      return BackwardWeight(action);
    case ActionKind::kOptimizerStep:
      Update(action);
      return absl::OkStatus();
    default:
      return absl::InternalError("not a compute action");
  }
}

void StagePasses::Update(const StepAction& action) {
  context_.stages.BeginUpdate(action.plan->updates);
  context_.optimizer->Step(action.plan->updates, action.step);
}

absl::Status StagePasses::Forward(const StepAction& pass) {
  const StageId stage = pass.action().stage;
  const StepSamples& samples = pass.samples;
  StageModule& module = context_.stages[stage];
  ASSIGN_OR_RETURN(StageModule::Tensors tensors, CollectTensors(pass));
  StageModule::Keep keep = StageModule::Keep::kNothing;
  if (context_.program.training && context_.program.stages[stage.index()].has_backward) {
    keep = pass.plan->recomputed ? StageModule::Keep::kInputs : StageModule::Keep::kGraph;
  }
  PassResult made{&module.outputs(), {}, samples.range};
  if (module.has_loss() && context_.inputs.ValidOf(samples) != samples) {
    RETURN_IF_ERROR(EvaluateValid(pass, tensors));
    if (module.outputs().empty()) {
      context_.sends.Keep(pass, std::move(made));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(auto result, module.Forward(samples, std::move(tensors), keep));
    made.tensors = std::move(result.outputs);
  } else {
    ASSIGN_OR_RETURN(auto result, module.Forward(samples, std::move(tensors), keep));
    RETURN_IF_ERROR(AddFigures(pass, result, samples));
    made.tensors = std::move(result.outputs);
  }
  if (context_.program.asynchronous) context_.stages.UpdateStates();
  context_.stages.IsolateFromParameters(made.tensors);
  return HandOver(pass, Direction::kActivation, std::move(made));
}

absl::Status StagePasses::EvaluateValid(const StepAction& pass,
                                        const StageModule::Tensors& tensors) {
  const StepSamples valid = context_.inputs.ValidOf(pass.samples);
  if (valid.range.empty()) return absl::OkStatus();
  StageModule& module = context_.stages[pass.action().stage];
  const SampleRange range = pass.samples.range;
  StageModule::Tensors cut;
  cut.totals = tensors.totals;
  for (size_t i = 0; i < tensors.received.size(); ++i) {
    const TensorMeta& meta = context_.graph.meta(module.received()[i]);
    if (!meta.DependsOnBatch()) {
      cut.received.push_back(tensors.received[i]);
      continue;
    }
    ASSIGN_OR_RETURN(at::Tensor part, Cut(tensors.received[i], meta, range, valid.range));
    cut.received.push_back(std::move(part));
  }
  for (size_t i = 0; i < tensors.inputs.size(); ++i) {
    const TensorMeta& meta = context_.graph.input(module.inputs()[i]).meta;
    ASSIGN_OR_RETURN(at::Tensor part, Cut(tensors.inputs[i], meta, range, valid.range));
    cut.inputs.push_back(std::move(part));
  }
  ASSIGN_OR_RETURN(const StageModule::Forwarded result,
                   module.Forward(valid, std::move(cut), StageModule::Keep::kNothing));
  return AddFigures(pass, result, valid);
}

absl::Status StagePasses::AddFigures(const StepAction& pass, const StageModule::Forwarded& result,
                                     const StepSamples& samples) {
  if (!result.loss.defined() && !result.prediction.defined()) return absl::OkStatus();
  PassFigures figures{.step = samples.step,
                      .samples = samples.range.size(),
                      .valid = context_.inputs.ValidIn(samples.step)};
  const Graph& graph = context_.graph;
  const std::optional<InputId> target = ClassTarget(graph);
  const StepSamples valid = context_.inputs.ValidOf(samples);
  at::Tensor correct;
  const at::NoGradGuard no_grad;
  if (result.prediction.defined() && target.has_value() && !valid.range.empty()) {
    const TensorMeta& meta = graph.meta(*graph.prediction());
    ASSIGN_OR_RETURN(const at::Tensor prediction,
                     Cut(result.prediction, meta, samples.range, valid.range));
    ASSIGN_OR_RETURN(const at::Tensor classes, context_.inputs.Load(*target, valid));
    correct = prediction.argmax(1).eq(classes).sum();
    figures.predicted = classes.numel();
  }
  return context_.figures.Add(pass, figures, result.loss, correct);
}

absl::Status StagePasses::Recompute(const StepAction& pass) {
  StageModule& module = context_.stages[pass.action().stage];
  ASSIGN_OR_RETURN(std::vector<at::Tensor> inputs,
                   context_.inputs.Load(module.inputs(), pass.samples));
  return module.Recompute(pass.samples, std::move(inputs));
}

absl::Status StagePasses::Backward(const StepAction& pass) {
  StageModule& module = context_.stages[pass.action().stage];
  ASSIGN_OR_RETURN(std::vector<at::Tensor> gradients, CollectGradients(pass));
  const AwaitedGradients awaited = AwaitedIn(pass);
  auto result = pass.action().kind == ActionKind::kBackward
                    ? module.Backward(pass.samples, gradients, &awaited)
                    : module.BackwardInput(pass.samples, gradients);
  RETURN_IF_ERROR(result.status());
  gradients.clear();
  IsolateGradients(*result);
  return HandOver(pass, Direction::kGradient,
                  {&module.received(), *std::move(result), pass.samples.range});
}

absl::Status StagePasses::BackwardWeight(const StepAction& pass) {
  const AwaitedGradients awaited = AwaitedIn(pass);
  return context_.stages[pass.action().stage].BackwardWeight(pass.samples, &awaited);
}

AwaitedGradients StagePasses::AwaitedIn(const StepAction& pass) const {
  AwaitedGradients awaited;
  for (const MarkPlan& mark : pass.plan->marks) awaited.sets.push_back(mark.parameters);
  awaited.complete = [this, &pass](size_t set) {
    context_.reach(pass, pass.plan->marks[set].node);
  };
  return awaited;
}

std::vector<TensorPiece> StagePasses::Take(int32_t channel, Direction direction,
                                           const StepSamples& samples) {
  std::vector<TensorPiece> pieces = context_.mailbox.Take(channel, direction, samples);
  for (const TensorPiece& piece : pieces) {
    if (piece.ready != nullptr) context_.streams->Await(piece.ready);
  }
  return pieces;
}

absl::StatusOr<StageModule::Tensors> StagePasses::CollectTensors(const StepAction& pass) {
  const StageId stage = pass.action().stage;
  const StageModule& module = context_.stages[stage];
  std::vector<std::vector<Part>> parts(module.received().size());
  for (int32_t c : context_.plan.OfStage(stage).into) {
    const std::vector<ValueRef>& values = context_.program.channels[c].values;
    for (TensorPiece& piece : Take(c, Direction::kActivation, pass.samples)) {
      for (size_t i = 0; i < piece.tensors.size(); ++i) {
        parts[IndexOf(module.received(), values[i]).value()].push_back(
            {piece.samples.range, std::move(piece.tensors[i])});
      }
    }
  }
  StageModule::Tensors tensors;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ValueRef value = module.received()[i];
    auto joined = Join(std::move(parts[i]), context_.graph.meta(value), pass.samples.range);
    if (!joined.ok()) return Annotate(joined.status(), NameOf(context_.graph.node(value.node)));
    tensors.received.push_back(*std::move(joined));
  }
  ASSIGN_OR_RETURN(tensors.inputs, context_.inputs.Load(module.inputs(), pass.samples));
  ASSIGN_OR_RETURN(tensors.totals, context_.inputs.TotalsFor(module.totals(), stage, pass.samples));
  return tensors;
}

absl::StatusOr<std::vector<at::Tensor>> StagePasses::CollectGradients(const StepAction& pass) {
  const StageId stage = pass.action().stage;
  const std::vector<ValueRef>& outputs = context_.stages[stage].outputs();
  std::vector<std::vector<Part>> parts(outputs.size());
  for (int32_t c : context_.plan.OfStage(stage).out) {
    const std::vector<ValueRef>& values = context_.program.channels[c].gradient_values;
    for (TensorPiece& piece : Take(c, Direction::kGradient, pass.samples)) {
      for (size_t i = 0; i < piece.tensors.size(); ++i) {
        if (!piece.tensors[i].defined()) continue;
        parts[IndexOf(outputs, values[i]).value()].push_back(
            {piece.samples.range, std::move(piece.tensors[i])});
      }
    }
  }
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto sum = Sum(parts[i], context_.graph.meta(outputs[i]), pass.samples.range);
    if (!sum.ok()) return Annotate(sum.status(), NameOf(context_.graph.node(outputs[i].node)));
    gradients.push_back(*std::move(sum));
  }
  return gradients;
}

// To other stages of the device at once, to those of others when the sends start.
absl::Status StagePasses::HandOver(const StepAction& pass, Direction direction, PassResult result) {
  for (const LocalPiece& local : pass.plan->local) {
    ASSIGN_OR_RETURN(std::vector<at::Tensor> pieces,
                     CutForChannel(result, context_.graph, context_.program, local.channel,
                                   direction, local.samples));
    context_.mailbox.Put(local.channel, direction,
                         {{pass.samples.step, local.samples}, std::move(pieces)});
  }
  context_.sends.Keep(pass, std::move(result));
  return absl::OkStatus();
}

}  // namespace stagewright
