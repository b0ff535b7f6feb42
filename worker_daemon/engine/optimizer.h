// SGD and Adam on the parameters of one device.
//
// The arithmetic is that of torch.optim.SGD and torch.optim.Adam on a CPU (their single-tensor
// forms), operation by operation, so that results agree to the last bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "common/base/ids.h"
#include "worker_daemon/engine/optimizer_config.h"
#include "worker_daemon/engine/parameter_store.h"

namespace stagewright {

class ParameterOptimizer {
 public:
  // `parameters` must outlive the optimizer. REQUIRES: CheckOptimizer(config).
  ParameterOptimizer(const OptimizerConfig& config, const ParameterStore& parameters)
      : config_(config), parameters_(&parameters) {}

  // Updates those of `ids` that have a gradient, and clears it. Parameters without a gradient keep
  // their value and state, as in PyTorch.
  void Step(const std::vector<ParameterId>& ids);

 private:
  // Of one parameter.
  struct State {
    int64_t steps = 0;
    at::Tensor momentum;       // SGD: the momentum buffer; Adam: the mean of gradients.
    at::Tensor second_moment;  // Adam: the mean of squared gradients.
  };
  void StepSgd(at::Tensor& parameter, at::Tensor gradient, State& state) const;
  void StepAdam(at::Tensor& parameter, at::Tensor gradient, State& state) const;

  OptimizerConfig config_;
  const ParameterStore* parameters_;
  std::map<ParameterId, State> states_;
};

}  // namespace stagewright
