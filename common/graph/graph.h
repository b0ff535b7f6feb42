// The operator graph: what is captured, planned and run (design: one graph).
//
// Nodes are ATen operators with their arguments, or, in graphs imported from published profiles,
// operators that carry a measured cost and no arguments ("planning-only"). A Graph is immutable and
// valid by construction.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/graph/dag.h"
#include "common/graph/tensor.h"

namespace stagewright {

// A size that belongs to one neighbour of a node.
struct NeighborBytes {
  NodeId node;
  Bytes bytes = 0;
  friend bool operator==(const NeighborBytes&, const NeighborBytes&) = default;
};

// One measured way to run a planning-only node (Piper's "TMPC"): on several devices at once, or
// with its forward pass repeated. Per profiled micro-batch and device.
struct ProfiledConfiguration {
  int32_t tensor_parallel = 1;  // Devices that share the node's tensors.
  bool recompute = false;
  Nanos time = 0;  // Forward plus backward, the repeated forward pass included.
  Bytes parameter_bytes = 0;
  Bytes saved_bytes = 0;     // Piper's A: per micro-batch in flight.
  Bytes resident_bytes = 0;  // Piper's B: whatever the number in flight.
  // Beyond the edge's own bytes when the neighbour lies in another stage. Sorted by node.
  std::vector<NeighborBytes> sync_from;  // Predecessors.
  std::vector<NeighborBytes> sync_to;    // Successors.
  friend bool operator==(const ProfiledConfiguration&, const ProfiledConfiguration&) = default;
};

// Cost of a planning-only node per micro-batch of `samples` samples. The backward pass of a node
// with parameters splits into halves of equal length; that of any other is all input half.
struct ProfiledCost {
  Nanos forward = 0;
  Nanos backward = 0;
  Bytes activation_bytes = 0;  // Its output; the largest of `edge_bytes` where they are given.
  Bytes parameter_bytes = 0;
  int64_t samples = 1;
  // Kept from the forward to the backward pass; `activation_bytes` where unknown.
  std::optional<Bytes> saved_bytes;
  // Parameters, gradients, optimizer state and whatever else stays, for any optimizer; by
  // `parameter_bytes` and the optimizer where unknown.
  std::optional<Bytes> resident_bytes;
  // What each successor reads, sorted by node; empty where each reads the whole output.
  std::vector<NeighborBytes> edge_bytes;
  // Other ways to run the node; unique by (tensor_parallel, recompute) and sorted by them. Empty
  // where the profile has none. The figures above are those of one device without recomputation.
  std::vector<ProfiledConfiguration> configurations;
  friend bool operator==(const ProfiledCost&, const ProfiledCost&) = default;
};

struct Node {
  std::string name;    // Unique within the graph.
  std::string target;  // "aten.linear.default"; empty for planning-only nodes.
  std::vector<Argument> args;
  std::vector<NamedArgument> kwargs;
  std::vector<TensorMeta> outputs;  // At least one, unless planning-only.
  std::string module;               // "branches.0.encoder"; for people.
  std::vector<NodeId> after;  // Order without data read through `args` (planning-only graphs).
  std::optional<ProfiledCost> cost;
  bool batch_dependent = false;  // The result depends on which samples share a micro-batch.
};

struct Parameter {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  bool trainable = true;
  bool buffer = false;
  std::vector<std::string> aliases;  // Other names of the same tensor (tied weights).
  // The elements of a constant that capture made, little-endian: no module holds it, so it is in no
  // weights file and in no checkpoint.
  std::optional<std::string> data;

  int64_t Elements() const;
  Bytes SizeBytes() const { return Elements() * SizeOf(dtype); }
};

enum class InputRole { kFeature, kTarget };

struct Input {
  std::string name;  // The name of the tensor in the data file.
  TensorMeta meta;
  InputRole role = InputRole::kFeature;
};

enum class LossReduction { kMean, kSum };

// Scalars and small tensors that are summed over all samples of a mini-batch before any pass runs:
// what losses divide by (tokens that count, class weights of the targets). They depend on inputs
// and on parameters that neither train nor change.
struct BatchTotals {
  std::vector<Node> nodes;       // In an order in which they can run; refer to each other by index.
  std::vector<ValueRef> values;  // By TotalId; of `nodes`.
};

// State that a module carries from step to step: at the end of a training step the parameter takes
// the value that the step's forward passes computed from the old one.
struct StateUpdate {
  ParameterId parameter;  // A buffer.
  ValueRef value;         // Same type and shape.
  friend bool operator==(const StateUpdate&, const StateUpdate&) = default;
};

// How many samples one forward pass may take.
struct SampleBounds {
  int64_t least = 1;
  int64_t most = std::numeric_limits<int64_t>::max();
  friend bool operator==(const SampleBounds&, const SampleBounds&) = default;
};

// The contents of a graph before its invariants are checked.
struct GraphData {
  std::string name;
  std::vector<Node> nodes;
  std::vector<Parameter> parameters;
  std::vector<Input> inputs;
  std::optional<ValueRef> loss;
  LossReduction loss_reduction = LossReduction::kMean;
  std::optional<ValueRef> prediction;
  std::string producer;
  BatchTotals totals;
  std::vector<StateUpdate> state_updates;
  SampleBounds samples;
};

// Visits every leaf of `argument` (lists are entered), in order.
template <typename F>
void ForEachLeaf(const Argument& argument, F&& visit) {
  if (const auto* list = std::get_if<Argument::List>(&argument.value)) {
    for (const Argument& item : *list) ForEachLeaf(item, visit);
  } else {
    visit(argument);
  }
}

template <typename F>
void ForEachLeaf(const Node& node, F&& visit) {
  for (const Argument& argument : node.args) ForEachLeaf(argument, visit);
  for (const NamedArgument& argument : node.kwargs) ForEachLeaf(argument.value, visit);
}

class Graph {
 public:
  // INVALID_ARGUMENT, naming the node and field, unless: there is at least one node; names are
  // unique and not empty; every index is in range; the graph is acyclic; every executable node has
  // a target and outputs with non-negative shapes; costs are non-negative; sizes do not overflow;
  // the loss is a floating scalar; parameter names are unique; layouts fit their shapes; totals
  // read nothing that trains or changes; a state update fits its buffer.
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
