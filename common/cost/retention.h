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

// For every node, whether it keeps the inputs of the graph that it reads, directly or, where it is
// a view, for a node that reads it. O(size of the graph).
std::vector<bool> KeepsInputs(const Graph& graph);

// Whether the node itself needs its outputs for its backward pass, whoever else does.
bool NeedsItsOutputs(const Graph& graph, NodeId node);

// The value whose memory a value lies in: itself, or where views started from.
ValueRef StorageOf(const Graph& graph, ValueRef value);

// Bytes per output element that the node keeps beside its inputs and outputs: 1 for a dropout mask.
int64_t HiddenBytesPerElement(const Graph& graph, NodeId node);

}  // namespace stagewright
