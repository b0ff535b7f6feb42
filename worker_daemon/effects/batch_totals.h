// Totals of a batch (Graph::totals): what losses divide by, summed over all samples of a mini-batch
// before any pass runs, so that micro-batches and replicas divide by the same. Without gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/step/device_plan.h"
#include "worker_daemon/torch/operator_call.h"

namespace stagewright {

class TotalsModule {
 public:
  // `graph`, `plan` and `parameters` must outlive it. Errors of OperatorCall::Bind;
  // INVALID_ARGUMENT if a node reads a parameter that the store does not hold.
  static absl::StatusOr<TotalsModule> Create(const Graph& graph, const TotalsPlan& plan,
                                             const ParameterStore& parameters, at::Device device);

  // The totals of a batch, parallel to the plan's values, from its inputs, parallel to the plan's.
  // Errors of OperatorCall::Run.
  absl::StatusOr<std::vector<at::Tensor>> Run(int64_t samples,
                                              const std::vector<at::Tensor>& inputs) const;

 private:
  TotalsModule(const Graph& graph, const TotalsPlan& plan, const ParameterStore& parameters)
      : graph_(&graph), plan_(&plan), parameters_(&parameters) {}

  const Graph* graph_;
  const TotalsPlan* plan_;
  const ParameterStore* parameters_;
  std::vector<OperatorCall> calls_;  // Parallel to the plan's nodes.
};

}  // namespace stagewright
