#include "worker_daemon/update/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

// Fills any accelerator; more would only take memory for what is in between.
constexpr size_t kMostBytesTogether = size_t{64} << 20;

}  // namespace

ParameterOptimizer::Constants ParameterOptimizer::ConstantsOf(ParameterId id, int64_t step) const {
  Constants constants{spec_.learning_rate, spec_.weight_decay};
  const int group = id.index() < groups_.size() ? groups_[id.index()] : -1;
  if (group >= 0) {
    constants.learning_rate *= spec_.groups[group].learning_rate_scale;
    constants.weight_decay = spec_.groups[group].weight_decay;
  }
  constants.learning_rate *= LearningRateFactor(spec_.schedule, step);
  return constants;
}

void ParameterOptimizer::SetShares(const std::vector<ParameterRange>& shares) {
  for (const ParameterRange& share : shares) shares_[share.id] = share;
}

at::Tensor ParameterOptimizer::OwnPart(ParameterId id, const at::Tensor& tensor) const {
  const auto share = shares_.find(id);
  if (share == shares_.end()) return tensor;
  return tensor.reshape({-1}).narrow(0, share->second.begin, share->second.size());
}

at::Tensor ParameterOptimizer::TakeGradient(ParameterId id) const {
  at::Tensor& of_share = parameters_->share_gradient(id);
  if (of_share.defined()) return std::exchange(of_share, at::Tensor());
  at::Tensor gradient = std::exchange((*parameters_)[id].mutable_grad(), at::Tensor());
  return gradient.defined() ? OwnPart(id, gradient) : gradient;
}

void ParameterOptimizer::Step(const std::vector<ParameterId>& ids, int64_t step) {
  if (before_step_) before_step_();
  const at::NoGradGuard no_grad;
  std::map<Kind, Batch> batches;
  for (ParameterId id : ids) {
    const at::Tensor& whole = (*parameters_)[id];
    at::Tensor gradient = TakeGradient(id);
    if (!gradient.defined()) continue;
    at::Tensor parameter = shares_.contains(id) ? OwnPart(id, whole.view({-1})) : whole;
    if (shares_.contains(id) && parameter.numel() == 0) continue;
    if (on_gradient_) on_gradient_(id, gradient);
    const auto [rate, decay] = ConstantsOf(id, step);
    State& state = states_[id];
    ++state.steps;
    const bool on_cpu = parameter.is_cpu();
    const Kind kind = {rate, decay, state.steps, !state.momentum.defined(),
                       parameter.scalar_type()};
    Batch& batch = batches[kind];
    batch.bytes += gradient.nbytes();
    batch.parameters.push_back(std::move(parameter));
    batch.gradients.push_back(std::move(gradient));
    batch.states.push_back(&state);
    // Calls for each small parameter would leave most of an accelerator idle. On a processor there
    // is nothing to gain, and each gradient's memory is free for the state of the next one.
    if (on_cpu || batch.bytes >= kMostBytesTogether) StepBatch(kind, std::exchange(batch, {}));
  }
  for (auto& [kind, batch] : batches) StepBatch(kind, std::move(batch));
}

void ParameterOptimizer::StepBatch(const Kind& kind, Batch batch) const {
  if (batch.parameters.empty()) return;
  const bool adam = spec_.kind == Optimizer::kAdam;
  if (kind.decay != 0 && adam && spec_.decoupled_weight_decay) {
    at::_foreach_mul_(batch.parameters, 1 - kind.rate * kind.decay);
  } else if (kind.decay != 0) {
    // Not in place: a gradient may be several parameters'.
    batch.gradients = at::_foreach_add(batch.gradients, batch.parameters, kind.decay);
  }
  adam ? StepAdam(kind, batch) : StepSgd(kind, batch);
}

void ParameterOptimizer::StepSgd(const Kind& kind, Batch& batch) const {
  if (spec_.kind == Optimizer::kSgdMomentum) {
    std::vector<at::Tensor> momenta;
    for (size_t i = 0; i < batch.states.size(); ++i) {
      if (kind.first) batch.states[i]->momentum = batch.gradients[i].clone();
      momenta.push_back(batch.states[i]->momentum);
    }
    if (!kind.first) {
      at::_foreach_mul_(momenta, spec_.momentum);
      at::_foreach_add_(momenta, batch.gradients);
    }
    batch.gradients = spec_.nesterov ? at::_foreach_add(batch.gradients, momenta, spec_.momentum)
                                     : std::move(momenta);
  }
  at::_foreach_add_(batch.parameters, batch.gradients, -kind.rate);
}

void ParameterOptimizer::StepAdam(const Kind& kind, Batch& batch) const {
  std::vector<at::Tensor> momenta, second_moments;
  for (size_t i = 0; i < batch.states.size(); ++i) {
    const at::Tensor& parameter = batch.parameters[i];
    at::Tensor& gradient = batch.gradients[i];
    State& state = *batch.states[i];
    if (kind.first) {
      state.momentum = at::zeros_like(parameter, at::MemoryFormat::Preserve);
      state.second_moment = at::zeros_like(parameter, at::MemoryFormat::Preserve);
    }
    momenta.push_back(state.momentum);
    second_moments.push_back(state.second_moment);
    // One pass over the memory, element by element in its order; so the layouts must be equal.
    if (gradient.strides() != parameter.strides() ||
        gradient.scalar_type() != parameter.scalar_type()) {
      gradient = at::empty_like(parameter, at::MemoryFormat::Preserve).copy_(gradient);
    }
  }
  const at::Tensor step = at::scalar_tensor(static_cast<double>(kind.steps),
                                            batch.parameters[0].options().dtype(at::kFloat));
  const std::vector<at::Tensor> steps(batch.parameters.size(), step);
  at::_fused_adam_(batch.parameters, batch.gradients, momenta, second_moments, {}, steps, kind.rate,
                   spec_.beta1, spec_.beta2, /*weight_decay=*/0, spec_.epsilon,
                   /*amsgrad=*/false, /*maximize=*/false);
}

std::map<std::string, at::Tensor> ParameterOptimizer::StateOf(ParameterId id) const {
  std::map<std::string, at::Tensor> result;
  const auto found = states_.find(id);
  if (found == states_.end() || !found->second.momentum.defined()) return result;
  const State& state = found->second;
  if (spec_.kind != Optimizer::kAdam) return {{"momentum_buffer", state.momentum}};
  result = {{"exp_avg", state.momentum}, {"exp_avg_sq", state.second_moment}};
  const auto share = shares_.find(id);
  if (share == shares_.end() || share->second.begin == 0)
    result["step"] = at::scalar_tensor(static_cast<double>(state.steps), at::kFloat);
  return result;
}

absl::Status ParameterOptimizer::Restore(ParameterId id,
                                         const std::map<std::string, at::Tensor>& state) {
  if (state.empty()) return absl::OkStatus();
  const at::Tensor& parameter = (*parameters_)[id];
  absl::Status wrong;
  const auto take = [&](const char* name) -> at::Tensor {
    const auto found = state.find(name);
    if (found == state.end()) {
      wrong = absl::InvalidArgumentError(absl::StrCat("its optimizer state has no ", name));
      return {};
    }
    if (found->second.sizes() != parameter.sizes() ||
        found->second.scalar_type() != parameter.scalar_type()) {
      wrong = absl::InvalidArgumentError(
          absl::StrCat("its optimizer state ", name, " has another type or shape"));
      return {};
    }
    const at::Tensor own = OwnPart(id, parameter.detach());
    return at::empty_like(own).copy_(OwnPart(id, found->second));
  };
  State restored;
  if (spec_.kind == Optimizer::kSgdMomentum) {
    restored.momentum = take("momentum_buffer");
  } else if (spec_.kind == Optimizer::kAdam) {
    restored.momentum = take("exp_avg");
    restored.second_moment = take("exp_avg_sq");
    const auto step = state.find("step");
    if (step == state.end() || step->second.numel() != 1)
      return absl::InvalidArgumentError("its optimizer state has no step");
    restored.steps = std::llround(step->second.to(at::kDouble).reshape({}).item<double>());
  }
  if (!wrong.ok()) return wrong;
  // As after a step: an empty share has no state, and so none to be saved.
  if (const auto share = shares_.find(id); share != shares_.end() && share->second.size() == 0)
    return absl::OkStatus();
  states_[id] = std::move(restored);
  return absl::OkStatus();
}

}  // namespace stagewright
