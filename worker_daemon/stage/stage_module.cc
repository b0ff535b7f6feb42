#include "worker_daemon/stage/stage_module.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <deque>

#include "absl/strings/str_cat.h"
#include "common/data/safetensors.h"
#include "worker_daemon/torch/autocast.h"
#include "worker_daemon/torch/tensor_types.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

// A copy of `scalar` where its memory is larger: some losses lie where one number per sample did.
at::Tensor Compact(const at::Tensor& scalar) {
  return scalar.storage().nbytes() > scalar.nbytes() ? scalar.clone() : scalar;
}

std::string RangeName(const StepSamples& samples) {
  return absl::StrCat("samples [", samples.range.begin, ",", samples.range.end, ")");
}

}  // namespace

absl::Status StageModule::CheckTensors(const StepSamples& samples, const Tensors& tensors) const {
  if (tensors.received.size() != received_.size() || tensors.inputs.size() != inputs_.size() ||
      tensors.totals.size() != totals_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(RangeName(samples), ": wrong number of tensors"));
  }
  const auto check = [&](const at::Tensor& tensor, const TensorMeta& meta,
                         absl::string_view name) -> absl::Status {
    if (Matches(tensor, meta, samples.range.size())) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(RangeName(samples), ": ", name, " is ", Describe(tensor), ", the graph says ",
                     Describe(meta.dtype, ShapeAt(meta, samples.range.size()))));
  };
  for (size_t i = 0; i < received_.size(); ++i) {
    RETURN_IF_ERROR(check(tensors.received[i], graph_->meta(received_[i]),
                          absl::StrCat("the value of ", NameOf(graph_->node(received_[i].node)))));
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    RETURN_IF_ERROR(check(tensors.inputs[i], graph_->input(inputs_[i]).meta,
                          absl::StrCat("input \"", graph_->input(inputs_[i]).name, "\"")));
  }
  for (size_t i = 0; i < totals_.size(); ++i) {
    RETURN_IF_ERROR(check(tensors.totals[i], graph_->meta(totals_[i]),
                          absl::StrCat("total ", totals_[i].value(), " of the batch")));
  }
  return absl::OkStatus();
}

void StageModule::MakeLeaves(Tensors& tensors) const {
  for (size_t i = 0; i < received_.size(); ++i) {
    tensors.received[i] = tensors.received[i].detach();
    if (needs_gradient_[i] && !options_.split_backward) tensors.received[i].requires_grad_(true);
  }
}

std::vector<at::Tensor> StageModule::CurrentWeights() const {
  std::vector<at::Tensor> weights;
  weights.reserve(trained_.size());
  for (ParameterId id : trained_) weights.push_back((*parameters_)[id]);
  return weights;
}

std::vector<at::Tensor> StageModule::CurrentStates() const {
  std::vector<at::Tensor> states;
  for (const State& state : states_) states.push_back((*parameters_)[state.parameter]);
  return states;
}

// In memory of their own, whatever changes or frees that of the buffers.
void StageModule::KeepStates(const std::vector<at::Tensor>& values) {
  if (!options_.training) return;
  for (State& state : states_) {
    const at::Tensor& next = values[state.place];
    const bool shared = next.storage().is_alias_of((*parameters_)[state.parameter].storage());
    state.next = shared ? next.detach().clone() : next.detach();
  }
}

std::vector<std::pair<ParameterId, at::Tensor>> StageModule::TakeStates() {
  std::vector<std::pair<ParameterId, at::Tensor>> taken;
  for (State& state : states_) {
    if (state.next.defined()) taken.emplace_back(state.parameter, std::move(state.next));
    state.next = at::Tensor();
  }
  return taken;
}

absl::Status StageModule::Evaluate(const StepSamples& samples, const Tensors& tensors,
                                   const Versions& versions, bool again, SegmentedGraph* segments,
                                   std::vector<at::Tensor>& values) const {
  values.assign(num_places_, at::Tensor());
  std::copy(tensors.received.begin(), tensors.received.end(), values.begin());
  std::vector<at::Tensor> cut;  // With segments: values as other segments than their own see them.
  if (segments != nullptr) {
    cut.resize(num_places_);
    for (size_t i = 0; i < received_.size(); ++i) {
      if (needs_gradient_[i]) cut[i] = segments->CutOffReceived(static_cast<int32_t>(i), values[i]);
    }
  }
  int32_t segment = -1;
  bool casts_weights = false, keeps_buffers = false;
  std::deque<at::Tensor> spare;  // Stands for buffers that a repeated pass must not change.
  const TensorSource source = [&](const Argument& argument) -> const at::Tensor& {
    if (const auto* value = std::get_if<ValueRef>(&argument.value)) {
      const int32_t place = place_.find(*value)->second;
      const bool across = segments != nullptr && segments_.of_place[place] != segment;
      return across && cut[place].defined() ? cut[place] : values[place];
    }
    if (const auto* parameter = std::get_if<ParameterId>(&argument.value)) {
      const int32_t trained = trained_place_[parameter->index()];
      const int32_t state = state_place_[parameter->index()];
      const at::Tensor& weight = trained >= 0 ? versions.weights[trained]
                                 : state >= 0 ? versions.states[state]
                                              : (*parameters_)[*parameter];
      if (keeps_buffers && trained < 0) return spare.emplace_back(weight.clone());
      return casts_weights ? casts_.Get(*parameter, weight) : weight;
    }
    if (const auto* total = std::get_if<TotalId>(&argument.value))
      return tensors
          .totals[std::lower_bound(totals_.begin(), totals_.end(), *total) - totals_.begin()];
    const InputId input = std::get<InputId>(argument.value);
    return tensors
        .inputs[std::lower_bound(inputs_.begin(), inputs_.end(), input) - inputs_.begin()];
  };
  const RandomKey key{options_.seed, samples.step, samples.range.begin};
  const bool mixed = options_.precision != Precision::kGraph;
  const AutocastScope autocast(options_.device.type(), options_.precision);
  std::vector<at::Tensor> outputs;
  for (size_t n = 0; n < steps_.size(); ++n) {
    const Step& item = steps_[n];
    casts_weights = item.casts_weights;
    keeps_buffers = again && item.changes_buffers;
    if (segments != nullptr) segment = segments_.of_node[n];
    outputs.clear();
    if (const auto* call = std::get_if<OperatorCall>(&item.call)) {
      RETURN_IF_ERROR(call->Run(samples.range.size(), source, outputs, mixed));
    } else {
      const KeyedDropout& dropout = std::get<KeyedDropout>(item.call);
      absl::Status status;
      RETURN_IF_ERROR(Annotate(Guarded([&] {
                                 status = dropout.Run(source(dropout.input()), samples.range.size(),
                                                      key, outputs);
                               }),
                               NameOf(graph_->node(item.node))));
      RETURN_IF_ERROR(status);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int32_t place = item.first_value + static_cast<int32_t>(i);
      if (mixed && given_[place] && outputs[i].is_floating_point())
        outputs[i] = outputs[i].to(ToScalarType(graph_->node(item.node).outputs[i].dtype));
      if (!options_.training && state_of_place_[place] >= 0)
        outputs[i] = versions.states[state_of_place_[place]];
      if (segments != nullptr) cut[place] = segments->CutOff(place, outputs[i]);
      values[place] = std::move(outputs[i]);
    }
    for (int32_t place : item.last_uses) {
      values[place] = at::Tensor();
      if (segments != nullptr) cut[place] = at::Tensor();
    }
  }
  return absl::OkStatus();
}

void StageModule::KeepRoots(const std::vector<at::Tensor>& values, InFlight& pass) const {
  pass.tensors.inputs.clear();
  pass.tensors.totals.clear();
  if (pass.segments.has_value()) {
    pass.tensors.received.clear();
    return;
  }
  for (int32_t place : output_places_) pass.outputs.push_back(values[place]);
  if (loss_.has_value()) pass.loss = Compact(values[*loss_]);
}

absl::StatusOr<StageModule::Forwarded> StageModule::Forward(const StepSamples& samples,
                                                            Tensors tensors, Keep keep) {
  RETURN_IF_ERROR(CheckTensors(samples, tensors));
  if (keep != Keep::kNothing && in_flight_.contains(samples)) {
    return absl::FailedPreconditionError(
        absl::StrCat(RangeName(samples), " are in flight already"));
  }
  const at::AutoGradMode grad_mode(keep == Keep::kGraph);
  if (keep != Keep::kNothing) MakeLeaves(tensors);
  InFlight pass;
  pass.versions.weights = older_versions_.empty() ? CurrentWeights() : older_versions_.front();
  pass.versions.states = CurrentStates();
  if (keep == Keep::kGraph && options_.split_backward) pass.segments.emplace(segments_);
  std::vector<at::Tensor> values;
  RETURN_IF_ERROR(Evaluate(samples, tensors, pass.versions, /*again=*/false,
                           pass.segments.has_value() ? &*pass.segments : nullptr, values));
  KeepStates(values);
  Forwarded result;
  for (int32_t place : output_places_) result.outputs.push_back(values[place].detach());
  if (loss_.has_value()) result.loss = values[*loss_].detach();
  if (prediction_.has_value()) result.prediction = values[*prediction_].detach();
  if (keep != Keep::kNothing) {
    pass.tensors = std::move(tensors);
    if (keep == Keep::kInputs) pass.tensors.inputs.clear();
    if (keep == Keep::kGraph) KeepRoots(values, pass);
    in_flight_.emplace(samples, std::move(pass));
  }
  return result;
}

absl::Status StageModule::Recompute(const StepSamples& samples, std::vector<at::Tensor> inputs) {
  ASSIGN_OR_RETURN(InFlight * pass, Find(samples));
  pass->tensors.inputs = std::move(inputs);
  const at::AutoGradMode grad_mode(true);
  pass->outputs.clear();
  pass->segments.reset();
  if (options_.split_backward) pass->segments.emplace(segments_);
  std::vector<at::Tensor> values;
  RETURN_IF_ERROR(Evaluate(samples, pass->tensors, pass->versions, /*again=*/true,
                           pass->segments.has_value() ? &*pass->segments : nullptr, values));
  KeepRoots(values, *pass);
  return absl::OkStatus();
}

absl::StatusOr<StageModule::InFlight*> StageModule::Find(const StepSamples& samples) {
  const auto found = in_flight_.find(samples);
  if (found == in_flight_.end()) {
    return absl::FailedPreconditionError(absl::StrCat(RangeName(samples), " are not in flight"));
  }
  return &found->second;
}

double StageModule::LossShare(int64_t samples) const {
  const int64_t batch = options_.update_batch > 0 ? options_.update_batch : options_.mini_batch;
  const double share = graph_->loss_reduction() == LossReduction::kMean
                           ? static_cast<double>(samples) / static_cast<double>(batch)
                           : 1.0;
  return share * options_.loss_weight * loss_scale_;
}

at::Tensor StageModule::LossGradient(int64_t samples) const {
  return at::full({}, LossShare(samples),
                  at::TensorOptions()
                      .dtype(ToScalarType(graph_->meta(*graph_->loss()).dtype))
                      .device(options_.device));
}

absl::Status StageModule::CheckGradients(const StepSamples& samples,
                                         const std::vector<at::Tensor>& gradients) const {
  if (gradients.size() != outputs_.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(RangeName(samples), ": a gradient per output is needed"));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const TensorMeta& meta = graph_->meta(outputs_[i]);
    const std::vector<int64_t> shape = ShapeAt(meta, samples.range.size());
    if (!gradients[i].defined() || gradients[i].sizes() == shape) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        RangeName(samples), ": the gradient of ", NameOf(graph_->node(outputs_[i].node)), " is ",
        Describe(gradients[i]), ", its value ", Describe(meta.dtype, shape)));
  }
  return absl::OkStatus();
}

absl::StatusOr<StageModule::Roots> StageModule::RootsOf(
    const StepSamples& samples, const InFlight& pass,
    const std::vector<at::Tensor>& gradients) const {
  if (pass.outputs.size() != outputs_.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(RangeName(samples), ": the forward pass kept nothing for a backward pass"));
  }
  Roots roots;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    // A gradient may come for what does not depend on a parameter after all (detached values).
    if (!gradients[i].defined() || !pass.outputs[i].requires_grad()) continue;
    roots.tensors.push_back(pass.outputs[i]);
    roots.gradients.push_back(gradients[i]);
  }
  if (pass.loss.defined() && pass.loss.requires_grad()) {
    roots.tensors.push_back(pass.loss);
    roots.gradients.push_back(LossGradient(samples.range.size()));
  }
  return roots;
}

// Gradients that were added up in older versions of the parameters belong to the newest.
void StageModule::MoveGradients(const InFlight& pass) const {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < trained_.size(); ++i) {
    const at::Tensor& used = pass.versions.weights[i];
    const at::Tensor& newest = (*parameters_)[trained_[i]];
    if (used.is_same(newest) || !used.grad().defined()) continue;
    if (newest.grad().defined()) {
      newest.mutable_grad() = newest.grad() + used.grad();
    } else {
      newest.mutable_grad() = used.grad();
    }
    used.mutable_grad() = at::Tensor();
  }
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
  for (State& state : states_) state.next = at::Tensor();
}

bool StageModule::Uses(ParameterId id) const {
  const int32_t trained = trained_place_[id.index()];
  if (trained >= 0 && !older_versions_.empty() &&
      older_versions_.back()[trained].is_same((*parameters_)[id])) {
    return true;
  }
  return trained >= 0 && std::any_of(in_flight_.begin(), in_flight_.end(), [&](const auto& entry) {
           return entry.second.versions.weights[trained].is_same((*parameters_)[id]);
         });
}

absl::StatusOr<std::vector<at::Tensor>> StageModule::Backward(
    const StepSamples& samples, const std::vector<at::Tensor>& gradients) {
  ASSIGN_OR_RETURN(InFlight * found, Find(samples));
  RETURN_IF_ERROR(CheckGradients(samples, gradients));
  InFlight pass = std::move(*found);
  in_flight_.erase(samples);
  std::vector<at::Tensor> result(received_.size());
  if (options_.split_backward) {
    RETURN_IF_ERROR(RunInputHalf(samples, gradients, pass, result));
    RETURN_IF_ERROR(RunWeightHalf(pass));
    return result;
  }
  ASSIGN_OR_RETURN(Roots roots, RootsOf(samples, pass, gradients));
  if (roots.tensors.empty()) return result;
  RETURN_IF_ERROR(Annotate(
      Guarded([&] { torch::autograd::backward(roots.tensors, roots.gradients); }), "backward"));
  MoveGradients(pass);
  for (size_t i = 0; i < received_.size(); ++i) result[i] = pass.tensors.received[i].grad();
  return result;
}

absl::Status StageModule::RunInputHalf(const StepSamples& samples,
                                       const std::vector<at::Tensor>& gradients, InFlight& pass,
                                       std::vector<at::Tensor>& result) const {
  if (!pass.segments.has_value() || pass.input_done) {
    return absl::FailedPreconditionError(absl::StrCat(
        RangeName(samples), ": nothing is kept for the input half of a backward pass"));
  }
  pass.input_done = true;
  return Annotate(Guarded([&] {
                    SegmentedGraph& segments = *pass.segments;
                    for (size_t i = 0; i < outputs_.size(); ++i) {
                      if (gradients[i].defined() && segments.Flows(output_places_[i]))
                        segments.AddGradient(output_places_[i], gradients[i]);
                    }
                    if (loss_.has_value() && segments.Flows(*loss_))
                      segments.AddGradient(*loss_, LossGradient(samples.range.size()));
                    segments.BackwardInput();
                    for (size_t i = 0; i < received_.size(); ++i)
                      result[i] = segments.TakeGradient(static_cast<int32_t>(i));
                  }),
                  "backward of the inputs");
}

absl::Status StageModule::RunWeightHalf(InFlight& pass) const {
  RETURN_IF_ERROR(Annotate(Guarded([&] { pass.segments->BackwardWeight(pass.versions.weights); }),
                           "backward of the weights"));
  MoveGradients(pass);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<at::Tensor>> StageModule::BackwardInput(
    const StepSamples& samples, const std::vector<at::Tensor>& gradients) {
  ASSIGN_OR_RETURN(InFlight * pass, Find(samples));
  RETURN_IF_ERROR(CheckGradients(samples, gradients));
  std::vector<at::Tensor> result(received_.size());
  RETURN_IF_ERROR(RunInputHalf(samples, gradients, *pass, result));
  return result;
}

absl::Status StageModule::BackwardWeight(const StepSamples& samples) {
  ASSIGN_OR_RETURN(InFlight * found, Find(samples));
  if (!found->input_done) {
    return absl::FailedPreconditionError(
        absl::StrCat(RangeName(samples), ": the input half of the backward pass has not run"));
  }
  InFlight pass = std::move(*found);
  in_flight_.erase(samples);
  return RunWeightHalf(pass);
}

}  // namespace stagewright
