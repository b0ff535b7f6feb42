// The operator graph: what is captured, planned and run (design: one graph).
//
// Nodes are ATen operators with their arguments, or, in graphs imported from published profiles,
// operators that carry a measured cost and no arguments ("planning-only"). A Graph is immutable and
// valid by construction.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/graph/dag.h"
#include "common/graph/graph_data.h"
#include "common/graph/tensor.h"

namespace stagewright {

class Graph {
 public:
  // INVALID_ARGUMENT, naming the node and field, unless CheckGraphData holds and the graph is
  // acyclic. O(size).
  static absl::StatusOr<Graph> Create(GraphData data);

  const std::string& name() const { return data_.name; }
  std::span<const Node> nodes() const { return data_.nodes; }
  std::span<const Parameter> parameters() const { return data_.parameters; }
  std::span<const Input> inputs() const { return data_.inputs; }
  const Node& node(NodeId id) const { return data_.nodes[id.index()]; }
  const Parameter& parameter(ParameterId id) const { return data_.parameters[id.index()]; }
  const Input& input(InputId id) const { return data_.inputs[id.index()]; }
  const TensorMeta& meta(ValueRef value) const { return node(value.node).outputs[value.output]; }
  const std::optional<ValueRef>& loss() const { return data_.loss; }
  LossReduction loss_reduction() const { return data_.loss_reduction; }
  const std::optional<ValueRef>& prediction() const { return data_.prediction; }
  const BatchTotals& totals() const { return data_.totals; }
  const TensorMeta& meta(TotalId id) const {
    const ValueRef value = data_.totals.values[id.index()];
    return data_.totals.nodes[value.node.index()].outputs[value.output];
  }
  std::span<const StateUpdate> state_updates() const { return data_.state_updates; }
  SampleBounds samples() const { return data_.samples; }
  const GraphData& data() const { return data_; }

  int32_t size() const { return dag_.size(); }
  const Dag& dag() const { return dag_; }  // Vertex v is NodeId(v).

  // What a node reads, each once, in first-use order.
  std::span<const ValueRef> Values(NodeId id) const { return values_[id.index()]; }
  std::span<const ParameterId> Parameters(NodeId id) const { return node_parameters_[id.index()]; }
  std::span<const InputId> Inputs(NodeId id) const { return node_inputs_[id.index()]; }
  std::span<const TotalId> Totals(NodeId id) const { return node_totals_[id.index()]; }

  // Nodes carry arguments, so the graph can be run; false for imported profiles.
  bool executable() const { return executable_; }
  // The node's backward pass runs: its floating-point value depends on a trainable parameter and,
  // where the graph has a loss, the loss depends on it. Every planning-only node has one.
  bool needs_backward(NodeId id) const { return needs_backward_[id.index()]; }
  // A state update changes the parameter, or batch normalisation keeps running statistics in it.
  bool is_state(ParameterId id) const { return is_state_[id.index()]; }

 private:
  void FindStates();
  void FindBackward();

  GraphData data_;
  Dag dag_;
  std::vector<std::vector<ValueRef>> values_;
  std::vector<std::vector<ParameterId>> node_parameters_;
  std::vector<std::vector<InputId>> node_inputs_;
  std::vector<std::vector<TotalId>> node_totals_;
  std::vector<bool> needs_backward_;
  std::vector<bool> is_state_;
  bool executable_ = false;
};

// Visits what a node reads from other nodes: each value, and output 0 of each planning-only node it
// comes after (a planning-only node has one value).
template <typename F>
void ForEachRead(const Graph& graph, NodeId id, F&& visit) {
  for (const ValueRef& value : graph.Values(id)) visit(value);
  for (NodeId before : graph.node(id).after) {
    if (graph.node(before).cost.has_value()) visit(ValueRef{before, 0});
  }
}

}  // namespace stagewright
