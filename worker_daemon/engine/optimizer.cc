#include "worker_daemon/engine/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "absl/strings/str_cat.h"

namespace stagewright {

absl::Status CheckOptimizer(const OptimizerConfig& config) {
  struct Field {
    const char* name;
    double value;
    double end;  // Values are in [0, end).
  };
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Field& field :
       {Field{"learning_rate", config.learning_rate, infinity},
        Field{"weight_decay", config.weight_decay, infinity},
        Field{"momentum", config.momentum, infinity},
        Field{"dampening", config.dampening, infinity}, Field{"beta1", config.beta1, 1},
        Field{"beta2", config.beta2, 1}, Field{"epsilon", config.epsilon, infinity}}) {
    if (!(field.value >= 0 && field.value < field.end)) {
      return absl::InvalidArgumentError(absl::StrCat("optimizer.", field.name, ": ", field.value,
                                                     " is not in [0, ", field.end, ")"));
    }
  }
  if (config.nesterov && (config.momentum == 0 || config.dampening != 0)) {
    return absl::InvalidArgumentError("optimizer.nesterov: needs a momentum and no dampening");
  }
  return absl::OkStatus();
}

void ParameterOptimizer::Step(const std::vector<ParameterId>& ids) {
  const at::NoGradGuard no_grad;
  for (ParameterId id : ids) {
    at::Tensor parameter = (*parameters_)[id];
    at::Tensor gradient = parameter.grad();
    if (!gradient.defined()) continue;
    State& state = states_[id];
    ++state.steps;
    if (config_.weight_decay != 0) gradient = gradient.add(parameter, config_.weight_decay);
    if (config_.kind == OptimizerKind::kSgd) {
      StepSgd(parameter, std::move(gradient), state);
    } else {
      StepAdam(parameter, std::move(gradient), state);
    }
    parameter.mutable_grad() = at::Tensor();
  }
}

void ParameterOptimizer::StepSgd(at::Tensor& parameter, at::Tensor gradient, State& state) const {
  if (config_.momentum != 0) {
    if (!state.momentum.defined()) {
      state.momentum = gradient.clone();
    } else {
      state.momentum.mul_(config_.momentum).add_(gradient, 1 - config_.dampening);
    }
    gradient = config_.nesterov ? gradient.add(state.momentum, config_.momentum) : state.momentum;
  }
  parameter.add_(gradient, -config_.learning_rate);
}

void ParameterOptimizer::StepAdam(at::Tensor& parameter, at::Tensor gradient, State& state) const {
  if (!state.momentum.defined()) {
    state.momentum = at::zeros_like(parameter, at::MemoryFormat::Preserve);
    state.second_moment = at::zeros_like(parameter, at::MemoryFormat::Preserve);
  }
  state.momentum.lerp_(gradient, 1 - config_.beta1);
  state.second_moment.mul_(config_.beta2).addcmul_(gradient, gradient, 1 - config_.beta2);
  const auto steps = static_cast<double>(state.steps);
  const double correction1 = 1 - std::pow(config_.beta1, steps);
  const double correction2 = 1 - std::pow(config_.beta2, steps);
  const at::Tensor denominator =
      (state.second_moment.sqrt() / std::sqrt(correction2)).add_(config_.epsilon);
  parameter.addcdiv_(state.momentum, denominator, -config_.learning_rate / correction1);
}

}  // namespace stagewright
