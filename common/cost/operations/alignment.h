// How the matrices of a product lie in memory, as far as its kernels care.
#pragma once

#include "common/base/units.h"
#include "common/graph/graph.h"

namespace stagewright {

// What kernels for tensor cores load at once, and so where rows have to begin: NVIDIA's Matrix
// Multiplication Background User's Guide asks for dimensions that are multiples of 16 bytes, as
// CUTLASS does of its fast kernels.
inline constexpr Bytes kTensorCoreAlignment = 16;

// Whether rows of an operand or of the result of a matrix product do not begin at multiples of
// kTensorCoreAlignment when a number takes `scalar` bytes. All products of its forward and backward
// passes read or write them. A row is the last dimension of a tensor, before views that transpose
// it; one that depends on the samples counts as aligned, and so does what is no matrix. False of
// anything but matrix products. O(operands of the node and views before them).
bool HasUnalignedRows(const Graph& graph, NodeId id, Bytes scalar);

}  // namespace stagewright
