// What autocast (worker_daemon/torch/autocast.h) does to the types of a graph: the one rule by
// which the engine casts weights and plans count time and memory.
//
// Operators of three sorts: those that gain by it take all their tensors in the smaller type; those
// that need it take them in float32; the others take them as they come, and their results have the
// largest type among them. LibTorch has a list for GPUs and one for CPUs: there, softmax, layer
// norm and powers do not need float32, and some others do. Plans count with that for GPUs.
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

// Which of LibTorch's lists.
enum class AutocastList { kGpu, kCpu };

// How an operator takes its tensors.
enum class AutocastRule {
  kAsTheyCome,
  kSmaller,
  kFloat32,
  // It is made of others, so that the type of its result is a matter of more than the types of what
  // it takes: no smaller one is promised.
  kVaries,
};
AutocastRule RuleOf(std::string_view target, AutocastList list);

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
                      const std::vector<DType>& values, const std::vector<DType>& inputs,
                      AutocastList list = AutocastList::kGpu);

// Whether the node takes its float32 parameters in the smaller type (weight_casts.h).
bool CastsWeights(const Graph& graph, NodeId node, Precision precision);

// The types of a graph's values where all nodes run beside each other, by node.
struct GraphTypes {
  std::vector<AutocastTypes> nodes;
  std::vector<std::vector<DType>> values;  // As the node's values come: Graph::Values.
};

// O(nodes + reads). REQUIRES: IsMixed(precision).
GraphTypes TypesOfGraph(const Graph& graph, Precision precision,
                        AutocastList list = AutocastList::kGpu);

// The types in which values, and their gradients, go from stage to stage: where the precision is
// mixed those that they have within a stage, else the graph's. What one list has in float32 goes in
// float32 whatever the devices, so that both ends of a message agree on it and no bit is lost.
// Immutable.
class MessageTypes {
 public:
  // O(nodes + reads), O(1) where the precision is not mixed. The graph must outlive it.
  MessageTypes(const Graph& graph, Precision precision);

  const Graph& graph() const { return *graph_; }
  Precision precision() const { return precision_; }
  DType operator[](ValueRef value) const {
    return types_.empty() ? graph_->meta(value).dtype : types_[value.node.index()][value.output];
  }
  // The size of a message of so many samples with this value alone. O(dimensions).
  Bytes SizeBytes(ValueRef value, int64_t samples) const {
    return graph_->meta(value).Elements(samples) * SizeOf((*this)[value]);
  }
  // Some device has the value in a smaller type within a stage: what it sends is a copy.
  bool MayBeCopied(ValueRef value) const {
    return !copied_.empty() && copied_[value.node.index()][value.output];
  }

 private:
  const Graph* graph_;
  Precision precision_;
  std::vector<std::vector<DType>> types_;  // By node and output; empty: the graph's.
  std::vector<std::vector<bool>> copied_;
};

}  // namespace stagewright
