// What automatic differentiation keeps of each value between the forward and the backward pass.
#pragma once

#include <vector>

#include "common/base/units.h"
#include "common/graph/graph.h"
#include "common/training/precision.h"

namespace stagewright {

// For every node, which of its outputs are kept. An output is kept if its own node needs it
// (softmax, relu), if a node that reads it, directly or through views, needs its inputs (products,
// gelu, layer norm), or if it is a second output of a node with a backward pass (statistics,
// masks). Nodes without a backward pass need nothing; views own no memory and keep nothing. Sums,
// concatenations and other linear maps need neither inputs nor outputs. A reader that casts a value
// (common/training/autocast.h) keeps a copy of its own instead. O(size of the graph).
std::vector<std::vector<bool>> KeptOutputs(const Graph& graph,
                                           Precision precision = Precision::kGraph);

// For every node, whether it keeps the inputs of the graph that it reads, directly or, where it is
// a view, for a node that reads it; as they come or as copies of another type. O(size of the
// graph).
std::vector<bool> KeepsInputs(const Graph& graph, Precision precision = Precision::kGraph);

// Whether the node itself needs its outputs for its backward pass, whoever else does.
bool NeedsItsOutputs(const Graph& graph, NodeId node);

// Whether the node itself needs what it reads for its backward pass, whoever else does.
bool NeedsItsInputs(const Graph& graph, NodeId node);

// Whether its operands get the gradient of its result itself, or a part of it, and no copy.
bool PassesGradientOn(const Node& node);

// Bytes that the node takes in a pass for nothing that it reads or gives: of the softmax within a
// cross-entropy; forward, of a mean squared error's terms and of its result before they are summed.
Bytes TemporaryBytes(const Graph& graph, NodeId node, int64_t samples, bool backward);

// The value whose memory a value lies in: itself, or where views started from.
ValueRef StorageOf(const Graph& graph, ValueRef value);

// What the node keeps beside its inputs and outputs: the mask of a dropout, positions of a maximum,
// mean and deviation of each row of a layer norm, the logarithm of each row's sum in attention, the
// sum of a cross-entropy's weights.
Bytes HiddenBytes(const Graph& graph, NodeId node, int64_t samples);

}  // namespace stagewright
