// The optimizer of a job, with PyTorch's names, defaults and meaning.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/training/learning_rate.h"
#include "common/training/names.h"
#include "common/training/parameter_groups.h"

namespace stagewright {

// What decides the state that each trained parameter has, beyond itself and its gradient.
enum class Optimizer { kSgd, kSgdMomentum, kAdam };

inline constexpr Named<Optimizer> kOptimizerNames[] = {
    {Optimizer::kSgd, "sgd"}, {Optimizer::kSgdMomentum, "momentum"}, {Optimizer::kAdam, "adam"}};

// Fields that the kind does not use are ignored.
struct OptimizerSpec {
  Optimizer kind = Optimizer::kSgd;
  double learning_rate = 1e-3;
  double weight_decay = 0;  // L2: added to the gradient; AdamW: shrinks the parameter.
  // SGD with momentum (torch.optim.SGD).
  double momentum = 0.9;
  bool nesterov = false;
  // Adam (torch.optim.Adam).
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool decoupled_weight_decay = false;  // torch.optim.AdamW.

  LearningRateSchedule schedule;
  std::vector<ParameterGroup> groups;  // The first that matches a name holds.

  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

// The names of kOptimizerNames, and "adamw" for Adam with decoupled weight decay.
std::vector<std::string> TrainableOptimizerNames();

// Defaults of the optimizer of such a name.
std::optional<OptimizerSpec> OptimizerByName(absl::string_view name);

// "sgd" or "adam", by the kind of state, as manifests of checkpoints have it: what differs in
// momentum alone can go on from each other's.
std::string StateName(Optimizer kind);

// INVALID_ARGUMENT names the field: the learning rate and Adam's epsilon positive, the weight decay
// not negative, all finite; momentum in (0, 1), betas in [0, 1). The same of the schedule; groups
// need a graph. `of` goes before the field.
absl::Status Check(const OptimizerSpec& spec, absl::string_view of = "");

}  // namespace stagewright
