// Sums of products over any dimensions: einsum, tensordot, bilinear, chains of matrices, distances.
#pragma once

#include <cstdint>

#include "common/graph/graph.h"

namespace stagewright {

// Floating-point operations of a node that KindOfTarget calls a contraction, where its arguments
// are as PyTorch has them; else one per element of its results. Several operands are taken two at a
// time from the left, as einsum does without a path; a chain of matrices from its cheaper end.
double ContractionFlops(const Graph& graph, const Node& node, int64_t samples);

}  // namespace stagewright
