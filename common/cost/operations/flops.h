// Floating-point operations of operators.
#pragma once

#include <cstdint>

#include "common/base/ids.h"
#include "common/graph/graph.h"

namespace stagewright {

// Floating-point operations of the forward pass of one node: those of all products and sums where
// IsMatmulLike (aten.h), one per output element otherwise.
double ForwardFlops(const Graph& graph, NodeId node, int64_t samples);

}  // namespace stagewright
