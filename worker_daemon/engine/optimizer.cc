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
    bool zero;   // It may be 0.
    double end;  // It is below.
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const bool adam = config.kind == OptimizerKind::kAdam;
  std::vector<Field> fields = {{"learning_rate", config.learning_rate, false, infinity},
                               {"weight_decay", config.weight_decay, true, infinity}};
  if (adam) {
    fields.push_back({"beta1", config.beta1, true, 1});
    fields.push_back({"beta2", config.beta2, true, 1});
    fields.push_back({"epsilon", config.epsilon, false, infinity});
  } else {
    fields.push_back({"momentum", config.momentum, true, 1});
  }
  for (const Field& field : fields) {
    const bool in_range = (field.zero ? field.value >= 0 : field.value > 0);
    if (in_range && field.value < field.end) continue;
    return absl::InvalidArgumentError(absl::StrCat("optimizer.", field.name, ": ", field.value,
                                                   " is not in ", field.zero ? "[" : "(", "0, ",
                                                   field.end, ")"));
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
      state.momentum.mul_(config_.momentum).add_(gradient);
    }
    gradient = state.momentum;
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
