#include "worker_daemon/stage/stage_module.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/data/safetensors.h"
#include "common/training/autocast.h"
#include "worker_daemon/torch/tensor_types.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

// Puts received values into the types that their nodes have here, whatever they came in, so that
// those that read them take the bits that they would take from these nodes.
void TakeReceived(const CompiledStage& stage, std::vector<at::Tensor>& received) {
  for (size_t i = 0; i < received.size(); ++i) {
    const at::ScalarType type = ToScalarType(stage.received_types[i]);
    if (received[i].scalar_type() != type) received[i] = received[i].detach().to(type);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<StageModule>> StageModule::Create(const Graph& graph,
                                                                 const ProgramStage& stage,
                                                                 std::vector<ValueRef> outputs,
                                                                 const ParameterStore& parameters,
                                                                 const StageOptions& options) {
  ASSIGN_OR_RETURN(CompiledStage compiled,
                   CompileStage(graph, stage, std::move(outputs), parameters, options));
  std::unique_ptr<StageModule> module(
      new StageModule(graph, parameters, options, std::move(compiled)));
  module->version_lag_ = static_cast<size_t>(std::max(stage.version_lag, 0));
  return module;
}

absl::Status StageModule::CheckTensors(const StepSamples& samples, const Tensors& tensors) const {
  if (tensors.received.size() != stage_.received.size() ||
      tensors.inputs.size() != stage_.inputs.size() ||
      tensors.totals.size() != stage_.totals.size()) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(samples), ": wrong number of tensors"));
  }
  const auto check = [&](const at::Tensor& tensor, const TensorMeta& meta, absl::string_view name,
                         bool mixed) -> absl::Status {
    if (Matches(tensor, meta, samples.range.size(), mixed)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(samples), ": ", name, " is ", Describe(tensor), ", the graph says ",
                     Describe(meta.dtype, ShapeAt(meta, samples.range.size()))));
  };
  for (size_t i = 0; i < stage_.received.size(); ++i) {
    RETURN_IF_ERROR(
        check(tensors.received[i], graph_->meta(stage_.received[i]),
              absl::StrCat("the value of ", NameOf(graph_->node(stage_.received[i].node))),
              IsMixed(options_.precision)));
  }
  for (size_t i = 0; i < stage_.inputs.size(); ++i) {
    RETURN_IF_ERROR(check(tensors.inputs[i], graph_->input(stage_.inputs[i]).meta,
                          absl::StrCat("input \"", graph_->input(stage_.inputs[i]).name, "\""),
                          false));
  }
  for (size_t i = 0; i < stage_.totals.size(); ++i) {
    RETURN_IF_ERROR(check(tensors.totals[i], graph_->meta(stage_.totals[i]),
                          absl::StrCat("total ", stage_.totals[i].value(), " of the batch"),
                          false));
  }
  return absl::OkStatus();
}

void StageModule::MakeLeaves(Tensors& tensors) const {
  for (size_t i = 0; i < stage_.received.size(); ++i) {
    tensors.received[i] = tensors.received[i].detach();
    if (stage_.needs_gradient[i] && !options_.split_backward)
      tensors.received[i].requires_grad_(true);
  }
}

std::vector<at::Tensor> StageModule::CurrentWeights() const {
  std::vector<at::Tensor> weights;
  weights.reserve(stage_.trained.size());
  for (ParameterId id : stage_.trained) weights.push_back((*parameters_)[id]);
  return weights;
}

std::vector<at::Tensor> StageModule::CurrentStates() const {
  std::vector<at::Tensor> states;
  for (const CompiledStage::State& state : stage_.states)
    states.push_back((*parameters_)[state.parameter]);
  return states;
}

// In memory of their own, whatever changes or frees that of the buffers.
void StageModule::KeepStates(const std::vector<at::Tensor>& values) {
  if (!options_.training) return;
  for (size_t i = 0; i < stage_.states.size(); ++i) {
    const at::Tensor& next = values[stage_.states[i].place];
    const at::Tensor& present = (*parameters_)[stage_.states[i].parameter];
    const bool shared = next.storage().is_alias_of(present.storage());
    next_states_[i] = shared ? next.detach().clone() : next.detach();
  }
}

std::vector<std::pair<ParameterId, at::Tensor>> StageModule::TakeStates() {
  std::vector<std::pair<ParameterId, at::Tensor>> taken;
  for (size_t i = 0; i < stage_.states.size(); ++i) {
    at::Tensor next = std::exchange(next_states_[i], at::Tensor());
    if (next.defined()) taken.emplace_back(stage_.states[i].parameter, std::move(next));
  }
  return taken;
}

absl::StatusOr<std::vector<at::Tensor>> StageModule::Evaluate(const StepSamples& samples,
                                                              const Tensors& tensors,
                                                              StagePass& pass, bool again) {
  const StageEvaluator evaluator = {*graph_, stage_, *parameters_, options_, casts_};
  return evaluator.Run(samples, tensors, pass.versions, again,
                       pass.segments.has_value() ? &*pass.segments : nullptr);
}

absl::StatusOr<StageModule::Forwarded> StageModule::Forward(const StepSamples& samples,
                                                            Tensors tensors, Keep keep) {
  RETURN_IF_ERROR(CheckTensors(samples, tensors));
  if (keep != Keep::kNothing && in_flight_.contains(samples)) {
    return absl::FailedPreconditionError(absl::StrCat(NameOf(samples), " are in flight already"));
  }
  const at::AutoGradMode grad_mode(keep == Keep::kGraph);
  TakeReceived(stage_, tensors.received);
  if (keep != Keep::kNothing) MakeLeaves(tensors);
  StagePass pass;
  pass.versions.weights = older_versions_.empty() ? CurrentWeights() : older_versions_.front();
  pass.versions.states = CurrentStates();
  if (keep == Keep::kGraph && options_.split_backward) pass.segments.emplace(stage_.segments);
  ASSIGN_OR_RETURN(const std::vector<at::Tensor> values,
                   Evaluate(samples, tensors, pass, /*again=*/false));
  KeepStates(values);
  Forwarded result;
  for (int32_t place : stage_.output_places) result.outputs.push_back(values[place].detach());
  if (stage_.loss.has_value()) {
    const DType type = graph_->meta(*graph_->loss()).dtype;
    result.loss = values[*stage_.loss].detach().to(ToScalarType(type));
  }
  if (stage_.prediction.has_value()) result.prediction = values[*stage_.prediction].detach();
  if (keep != Keep::kNothing) {
    pass.tensors = std::move(tensors);
    if (keep == Keep::kInputs) pass.tensors.inputs.clear();
    if (keep == Keep::kGraph) pass.KeepRoots(stage_, values);
    in_flight_.emplace(samples, std::move(pass));
  }
  return result;
}

absl::Status StageModule::Recompute(const StepSamples& samples, std::vector<at::Tensor> inputs) {
  ASSIGN_OR_RETURN(StagePass * pass, Find(samples));
  pass->tensors.inputs = std::move(inputs);
  const at::AutoGradMode grad_mode(true);
  pass->outputs.clear();
  pass->segments.reset();
  if (options_.split_backward) pass->segments.emplace(stage_.segments);
  ASSIGN_OR_RETURN(const std::vector<at::Tensor> values,
                   Evaluate(samples, pass->tensors, *pass, /*again=*/true));
  pass->KeepRoots(stage_, values);
  return absl::OkStatus();
}

absl::StatusOr<StagePass*> StageModule::Find(const StepSamples& samples) {
  const auto found = in_flight_.find(samples);
  if (found == in_flight_.end()) {
    return absl::FailedPreconditionError(absl::StrCat(NameOf(samples), " are not in flight"));
  }
  return &found->second;
}

at::Tensor StageModule::LossGradient(int64_t samples) const {
  if (!has_loss()) return at::Tensor();
  const int64_t batch = options_.update_batch > 0 ? options_.update_batch : options_.mini_batch;
  const double share = graph_->loss_reduction() == LossReduction::kMean
                           ? static_cast<double>(samples) / static_cast<double>(batch)
                           : 1.0;
  return at::full({}, share * options_.loss_weight * loss_scale_,
                  at::TensorOptions()
                      .dtype(ToScalarType(graph_->meta(*graph_->loss()).dtype))
                      .device(options_.device));
}

absl::Status StageModule::CheckGradients(const StepSamples& samples,
                                         const std::vector<at::Tensor>& gradients) const {
  if (gradients.size() != stage_.outputs.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(samples), ": a gradient per output is needed"));
  }
  for (size_t i = 0; i < stage_.outputs.size(); ++i) {
    const TensorMeta& meta = graph_->meta(stage_.outputs[i]);
    const std::vector<int64_t> shape = ShapeAt(meta, samples.range.size());
    if (!gradients[i].defined() || gradients[i].sizes() == shape) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        NameOf(samples), ": the gradient of ", NameOf(graph_->node(stage_.outputs[i].node)), " is ",
        Describe(gradients[i]), ", its value ", Describe(meta.dtype, shape)));
  }
  return absl::OkStatus();
}

void StageModule::KeepVersion() {
  if (version_lag_ == 0) return;
  if (older_versions_.size() == version_lag_) {
    casts_.Clear();  // They hold the version that goes.
    older_versions_.pop_front();
  }
  older_versions_.push_back(CurrentWeights());
}

void StageModule::Reset() {
  in_flight_.clear();
  older_versions_.clear();
  casts_.Clear();
  next_states_.assign(stage_.states.size(), at::Tensor());
}

bool StageModule::Uses(ParameterId id) const {
  const int32_t trained = stage_.trained_place[id.index()];
  if (trained >= 0 && !older_versions_.empty() &&
      older_versions_.back()[trained].is_same((*parameters_)[id])) {
    return true;
  }
  return trained >= 0 && std::any_of(in_flight_.begin(), in_flight_.end(), [&](const auto& entry) {
           return entry.second.versions.weights[trained].is_same((*parameters_)[id]);
         });
}

absl::StatusOr<std::vector<at::Tensor>> StageModule::Backward(
    const StepSamples& samples, const std::vector<at::Tensor>& gradients,
    const AwaitedGradients* awaited) {
  ASSIGN_OR_RETURN(StagePass * found, Find(samples));
  RETURN_IF_ERROR(CheckGradients(samples, gradients));
  StagePass pass = std::move(*found);
  in_flight_.erase(samples);
  const at::Tensor loss_gradient = LossGradient(samples.range.size());
  const GradientWatch watch(*graph_, stage_, *parameters_, pass.versions, awaited);
  std::vector<at::Tensor> result;
  if (options_.split_backward) {
    ASSIGN_OR_RETURN(result, pass.RunInputHalf(stage_, samples, gradients, loss_gradient));
    RETURN_IF_ERROR(pass.RunWeightHalf());
  } else {
    ASSIGN_OR_RETURN(result, pass.RunBackward(stage_, samples, gradients, loss_gradient));
  }
  pass.MoveGradients(stage_, *parameters_);
  return result;
}

absl::StatusOr<std::vector<at::Tensor>> StageModule::BackwardInput(
    const StepSamples& samples, const std::vector<at::Tensor>& gradients) {
  ASSIGN_OR_RETURN(StagePass * pass, Find(samples));
  RETURN_IF_ERROR(CheckGradients(samples, gradients));
  return pass->RunInputHalf(stage_, samples, gradients, LossGradient(samples.range.size()));
}

absl::Status StageModule::BackwardWeight(const StepSamples& samples,
                                         const AwaitedGradients* awaited) {
  ASSIGN_OR_RETURN(StagePass * found, Find(samples));
  if (!found->input_done) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(samples), ": the input half of the backward pass has not run"));
  }
  StagePass pass = std::move(*found);
  in_flight_.erase(samples);
  const GradientWatch watch(*graph_, stage_, *parameters_, pass.versions, awaited);
  RETURN_IF_ERROR(pass.RunWeightHalf());
  pass.MoveGradients(stage_, *parameters_);
  return absl::OkStatus();
}

}  // namespace stagewright
