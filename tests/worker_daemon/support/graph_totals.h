// What a module of the whole graph reads besides parameters and inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "common/graph/graph.h"
#include "worker_daemon/stage/parameter_store.h"

namespace stagewright::testing {

// The totals of a batch of `samples` samples whose inputs `input` gives, by TotalId: what a module
// of the whole graph reads besides them.
std::vector<at::Tensor> TotalsOf(const Graph& graph, const ParameterStore& parameters,
                                 const std::function<at::Tensor(InputId)>& input, int64_t samples);

}  // namespace stagewright::testing
