// SGD, Adam and AdamW on the parameters of one device.
//
// The arithmetic is that of torch.optim.SGD, torch.optim.Adam and torch.optim.AdamW on a CPU (their
// single-tensor forms), operation by operation, so that results agree to the last bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/memory/parameter_shares.h"
#include "common/training/optimizer_spec.h"
#include "worker_daemon/stage/parameter_store.h"

namespace stagewright {

class ParameterOptimizer {
 public:
  // `parameters` must outlive the optimizer; `groups` is GroupsOf, or empty without groups.
  // REQUIRES: Check(spec).
  ParameterOptimizer(const OptimizerSpec& spec, const ParameterStore& parameters,
                     std::vector<int> groups = {})
      : spec_(spec), groups_(std::move(groups)), parameters_(&parameters) {}

  // What replicas share out: of these parameters only the ranges are updated here and have a state.
  // The others are all this device's. Before anything else is done.
  void SetShares(const std::vector<ParameterRange>& shares);
  // By parameter; of those alone that are shared out.
  const std::map<ParameterId, ParameterRange>& shares() const { return shares_; }

  // Updates those of `ids` that have a gradient, and clears it. Parameters without a gradient keep
  // their value and state, as in PyTorch. `step` of the job, from 0, decides the learning rate.
  void Step(const std::vector<ParameterId>& ids, int64_t step);

  // Called at the beginning of each Step, before anything changes.
  void SetBeforeStep(std::function<void()> function) { before_step_ = std::move(function); }

  // Called in Step with every gradient that is taken, summed and clipped, before it is used. May
  // put another one of the same type and shape in its place. Of a share: its elements in a row.
  using GradientFunction = std::function<void(ParameterId id, at::Tensor& gradient)>;
  void SetOnGradient(GradientFunction function) { on_gradient_ = std::move(function); }

  // The state of a parameter under the names of torch.optim: "momentum_buffer", or "step" (float32,
  // as there), "exp_avg" and "exp_avg_sq". Empty before its first step. Of a share: its elements in
  // a row, and "step" with the first of all shares alone. The tensors are the optimizer's own: copy
  // them before the next step.
  std::map<std::string, at::Tensor> StateOf(ParameterId id) const;
  // Goes on from such a state of the whole parameter, of which it copies its share to the
  // parameter's device. INVALID_ARGUMENT names what is missing or has another type or shape than
  // the parameter.
  absl::Status Restore(ParameterId id, const std::map<std::string, at::Tensor>& state);

 private:
  // What the optimizer keeps for one parameter.
  struct State {
    int64_t steps = 0;
    at::Tensor momentum;       // SGD: the momentum buffer; Adam: the mean of gradients.
    at::Tensor second_moment;  // Adam: the mean of squared gradients.
  };
  // What applies to one parameter at one step.
  struct Constants {
    double learning_rate = 0;
    double weight_decay = 0;
  };
  Constants ConstantsOf(ParameterId id, int64_t step) const;
  // The gradient of what this device updates, which it has no more; undefined if there is none.
  at::Tensor TakeGradient(ParameterId id) const;
  // All of it, or the share of this device.
  at::Tensor OwnPart(ParameterId id, const at::Tensor& tensor) const;
  // What the parameters have in common that are stepped together.
  struct Kind {
    double rate = 0, decay = 0;
    int64_t steps = 0;
    bool first = false;  // They have no state yet.
    at::ScalarType type = at::kFloat;
    auto operator<=>(const Kind&) const = default;
  };
  struct Batch {
    std::vector<at::Tensor> parameters, gradients;
    std::vector<State*> states;
    size_t bytes = 0;  // Those of the gradients.
  };
  void StepBatch(const Kind& kind, Batch batch) const;
  void StepSgd(const Kind& kind, Batch& batch) const;
  void StepAdam(const Kind& kind, Batch& batch) const;

  OptimizerSpec spec_;
  std::vector<int> groups_;  // By ParameterId: index in spec_.groups, or -1.
  const ParameterStore* parameters_;
  std::function<void()> before_step_;
  GradientFunction on_gradient_;
  std::map<ParameterId, ParameterRange> shares_;
  std::map<ParameterId, State> states_;
};

}  // namespace stagewright
