// The optimizer of a job, with PyTorch's names, defaults and meaning. No LibTorch here.
#pragma once

#include "common/base/status.h"

namespace stagewright {

enum class OptimizerKind { kSgd, kAdam };

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kSgd;
  double learning_rate = 1e-3;
  double weight_decay = 0;  // L2: added to the gradient.
  // SGD (torch.optim.SGD).
  double momentum = 0;
  // Adam (torch.optim.Adam).
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

// INVALID_ARGUMENT, naming the field, for values outside the bounds that the planner sets for
// jobs: the learning rate and Adam's epsilon positive, the weight decay not negative, all finite;
// momentum and betas in [0, 1). Fields that the kind does not use are ignored.
absl::Status CheckOptimizer(const OptimizerConfig& config);

}  // namespace stagewright
