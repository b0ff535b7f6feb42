// The tensors that one operator is run on, made up: floating-point elements are uniform in [0.05,
// 0.95], where losses, logarithms, roots and probabilities are all at home; integers are uniform in
// the range that the operator takes (common/graph/index_bounds.h), 0 where none is known; booleans
// are true. They come in the types that the operators before them give at this precision. Constants
// are what capture made them. An operand that a view made lies in memory as the view leaves it; any
// other is contiguous.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/graph/index_bounds.h"
#include "common/training/autocast.h"

namespace stagewright {

// By argument: ValueRef, InputId, ParameterId or TotalId, each once. Without autograd history;
// parameters that train require a gradient.
using Operands = std::vector<std::pair<Argument, at::Tensor>>;

// REQUIRES: the graph holds the argument, and `operands` has it.
const at::Tensor& TensorOf(const Operands& operands, const Argument& argument);

// `bounds` are FindIndexBounds(graph), `types` MixedTypes of the precision. Errors of
// ParameterStore::Load and OperatorCall, of a view; RESOURCE_EXHAUSTED or INTERNAL with LibTorch's
// message.
absl::StatusOr<Operands> MakeOperands(const Graph& graph, NodeId node, int64_t samples,
                                      const std::vector<IndexBounds>& bounds, at::Device device,
                                      const std::optional<GraphTypes>& types = std::nullopt);

}  // namespace stagewright
