// What automatic differentiation keeps of each value between the forward and the backward pass.
#pragma once

#include <vector>

#include "common/graph/graph.h"

namespace stagewright {

// For every node, which of its outputs are kept. An output is kept if its own node needs it
// (softmax, relu), if a node that reads it, directly or through views, needs its inputs (products,
// gelu, layer norm), or if it is a second output of a node with a backward pass (statistics,
// masks). Nodes without a backward pass need nothing; views own no memory and keep nothing. Sums,
// concatenations and other linear maps need neither inputs nor outputs. O(size of the graph).
std::vector<std::vector<bool>> KeptOutputs(const Graph& graph);

// The value whose memory a value lies in: itself, or where views started from.
ValueRef StorageOf(const Graph& graph, ValueRef value);

// Bytes per output element that the node keeps beside its inputs and outputs: 1 for a dropout mask.
int64_t HiddenBytesPerElement(const Graph& graph, NodeId node);

}  // namespace stagewright
