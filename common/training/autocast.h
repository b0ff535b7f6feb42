// What autocast (worker_daemon/torch/autocast.h) does to the types of a graph: the one rule by
// which the engine casts weights and plans count time and memory.
//
// Operators of three sorts: those that gain by it take all their tensors in the smaller type; those
// that need it take them in float32; the others take them as they come, and their results have the
// largest type among them. The lists are those of LibTorch for GPUs. For CPUs it has fewer
// operators that need float32 (softmax, normalisation and powers are not among them), which plans
// take for larger there than they are.
#pragma once

#include <string_view>
#include <vector>

#include "common/graph/graph.h"
#include "common/training/precision.h"

namespace stagewright {

// Whether operators compute in other types than the graph's.
bool IsMixed(Precision precision);

// The type that large operators compute in. REQUIRES: IsMixed(precision).
DType SmallerType(Precision precision);

// Whether autocast has the operator take all its tensors, weights too, in the smaller type, on CPUs
// and GPUs alike: "aten.linear.default". Not so the overloads that are made of others on GPUs
// ("aten.conv2d.padding"), whose results have the smaller type, too.
bool TakesSmallerType(std::string_view target);

// One node among tensors of the types that they come in.
struct AutocastTypes {
  std::vector<DType> operands;  // In which each is taken: what differs is cast.
  std::vector<DType> results;   // By output.
  // Operands of the smaller type are taken for float32 without a cast that anyone sees: CPUs make
  // copies of them while the operator runs.
  bool widens = false;
};

// `values` and `inputs` are the types of what the node reads (Graph::Values and Graph::Inputs, in
// that order in the answer, too). O(arguments). REQUIRES: IsMixed(precision).
AutocastTypes TypesOf(const Graph& graph, NodeId node, Precision precision,
                      const std::vector<DType>& values, const std::vector<DType>& inputs);

// Whether the node takes its float32 parameters in the smaller type (weight_casts.h).
bool CastsWeights(const Graph& graph, NodeId node, Precision precision);

// The types of a graph's values where all nodes run beside each other, by node.
struct GraphTypes {
  std::vector<AutocastTypes> nodes;
  std::vector<std::vector<DType>> values;  // As the node's values come: Graph::Values.
};

// O(nodes + reads). REQUIRES: IsMixed(precision).
GraphTypes TypesOfGraph(const Graph& graph, Precision precision);

}  // namespace stagewright
