// What the time of an operator depends on, as text: two operators with equal signatures take
// equally long on one device, so that one of them is measured for both.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/training/autocast.h"
#include "common/training/precision.h"

namespace stagewright {

// "aten.linear.default(float32[s,256]', p float32[64,256]', none) -> float32[s,64]'": the target,
// its arguments with the types and shapes of tensors for `s` samples, its results, and the
// precision where it is not the graph's. Parameters have a "p", totals of the batch a "t" in front;
// a tensor that is read again is "=i" for the i-th. "'" marks operands that get a gradient and
// results that a gradient comes to. An operand that a view made is told as that view of what it
// shows, because the order of its elements in memory counts. Types are those that tensors come in
// at this precision (TypesOfGraph), which decide what is cast. REQUIRES: the graph is executable.
// O(size of the node, of the views before it and of its readers); at a mixed precision, of the
// graph.
std::string SignatureOf(const Graph& graph, NodeId node, Precision precision = Precision::kGraph);

// By node; empty for planning-only ones. O(size of the graph).
std::vector<std::string> SignaturesOf(const Graph& graph, Precision precision);

// The type that a value comes in, by `types` if there are any.
DType TypeOf(const Graph& graph, const std::optional<GraphTypes>& types, ValueRef value);

// TypesOfGraph where the precision is mixed.
std::optional<GraphTypes> MixedTypes(const Graph& graph, Precision precision);

// The node of a view whose result the operand is, invalid if it is none. `depth` counts the views
// that were looked through to get there; beyond 16 a tensor is taken for one in memory of its own.
NodeId ViewThatMade(const Graph& graph, const Argument& operand, int depth);

// Whether the gradient of an operand is computed in the node's backward pass.
bool NeedsGradient(const Graph& graph, NodeId node, const Argument& operand);

// By result of the node: how many gradients come to it and are added up, one for each time that a
// node with a backward pass reads it, and one for the loss. Where none comes to any result but the
// node has a backward pass, one comes to the first that is floating-point.
std::vector<int> GradientsReceived(const Graph& graph, NodeId node);

// Whether its work depends on the number of samples: a shape or a size among its operands,
// arguments or results does.
bool DependsOnSamples(const Graph& graph, NodeId node);

}  // namespace stagewright
