#include "worker_daemon/effects/batch_totals.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagewright {

absl::StatusOr<TotalsModule> TotalsModule::Create(const Graph& graph, const TotalsPlan& plan,
                                                  const ParameterStore& parameters,
                                                  at::Device device) {
  TotalsModule module(graph, plan, parameters);
  for (ParameterId id : plan.parameters) {
    if (!parameters[id].defined()) {
      return absl::InvalidArgumentError(
          absl::StrCat("totals: parameter \"", graph.parameter(id).name, "\" is not loaded"));
    }
  }
  const TensorSource source = [&](const Argument& argument) -> const at::Tensor& {
    return parameters[std::get<ParameterId>(argument.value)];
  };
  for (int32_t n : plan.nodes) {
    // As in training: in evaluation the same is counted.
    auto call = OperatorCall::Bind(graph.totals().nodes[n], device, /*training=*/true, source);
    if (!call.ok()) return Annotate(call.status(), "totals");
    module.calls_.push_back(*std::move(call));
  }
  return module;
}

absl::StatusOr<std::vector<at::Tensor>> TotalsModule::Run(
    int64_t samples, const std::vector<at::Tensor>& inputs) const {
  const at::NoGradGuard no_grad;
  std::vector<std::vector<at::Tensor>> values(graph_->totals().nodes.size());
  const TensorSource source = [&](const Argument& argument) -> const at::Tensor& {
    if (const auto* value = std::get_if<ValueRef>(&argument.value))
      return values[value->node.index()][value->output];
    if (const auto* parameter = std::get_if<ParameterId>(&argument.value))
      return (*parameters_)[*parameter];
    const InputId input = std::get<InputId>(argument.value);
    return inputs[std::lower_bound(plan_->inputs.begin(), plan_->inputs.end(), input) -
                  plan_->inputs.begin()];
  };
  for (size_t i = 0; i < calls_.size(); ++i) {
    const absl::Status status = calls_[i].Run(samples, source, values[plan_->nodes[i]]);
    if (!status.ok()) return Annotate(status, "totals");
  }
  std::vector<at::Tensor> totals;
  for (TotalId id : plan_->values) {
    const ValueRef value = graph_->totals().values[id.index()];
    totals.push_back(values[value.node.index()][value.output]);
  }
  return totals;
}

}  // namespace stagewright
