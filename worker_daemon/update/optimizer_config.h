// The optimizer of a job, with PyTorch's names, defaults and meaning. No LibTorch here.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "worker_daemon/update/learning_rate.h"

namespace stagewright {

enum class OptimizerKind { kSgd, kAdam };

// What happens at a step whose loss or gradients are not finite.
enum class NonFinite {
  kStop,      // The step fails.
  kSkip,      // No device updates anything: needs a program that sums the gradients' norm.
  kContinue,  // Updates as if nothing were wrong, as PyTorch does.
};

// Constants of some parameters.
struct ParameterGroup {
  std::string pattern;  // A glob as in fnmatch(3) over names of parameters; "*" also crosses dots.
  double weight_decay = 0;
  double learning_rate_scale = 1;  // Multiplies the learning rate.
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kSgd;
  double learning_rate = 1e-3;
  double weight_decay = 0;  // L2: added to the gradient; AdamW: shrinks the parameter.
  // SGD (torch.optim.SGD).
  double momentum = 0;
  bool nesterov = false;
  // Adam (torch.optim.Adam).
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool decoupled_weight_decay = false;  // torch.optim.AdamW.

  LearningRateSchedule schedule;
  std::vector<ParameterGroup> groups;  // The first that matches a name holds.
  // Gradients whose norm over all parameters of the job is larger are scaled down to it
  // (torch.nn.utils.clip_grad_norm_). 0: never.
  double max_gradient_norm = 0;
  NonFinite on_non_finite = NonFinite::kStop;
};

// Whether devices have to sum the norm of all gradients before they update.
inline bool NeedsGradientNorm(const OptimizerConfig& config) {
  return config.max_gradient_norm > 0 || config.on_non_finite == NonFinite::kSkip;
}

// INVALID_ARGUMENT, naming the field, for values outside the bounds that the planner sets for
// jobs: the learning rate and Adam's epsilon positive, the weight decay not negative, all finite;
// momentum and betas in [0, 1); Nesterov needs momentum. Fields that the kind does not use are
// ignored.
absl::Status CheckOptimizer(const OptimizerConfig& config);

// For each parameter of the graph the index of the first group that matches its name or an alias;
// -1 if none does. INVALID_ARGUMENT names a pattern that matches no trainable parameter.
absl::StatusOr<std::vector<int>> GroupsOf(const Graph& graph, const OptimizerConfig& config);

}  // namespace stagewright
