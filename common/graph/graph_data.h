// The contents of a graph: nodes, parameters, inputs, totals and state updates.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/graph/profiled_cost.h"
#include "common/graph/tensor.h"

namespace stagewright {

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

// Where a parameter lies in the tensor that weights files and checkpoints hold: the entries from
// `begin` on along dimension `dim`. The slices of a tensor are all of it, each entry once.
struct ParameterSlice {
  std::string whole;                 // The tensor's name.
  std::vector<std::string> aliases;  // Its other names.
  std::vector<int64_t> shape;        // The whole tensor's.
  int32_t dim = 0;
  int64_t begin = 0;
  friend bool operator==(const ParameterSlice&, const ParameterSlice&) = default;
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
  // The part of a stored tensor that this is, where its node was cut in parts (common/rewrite). It
  // has no aliases of its own then.
  std::optional<ParameterSlice> slice;

  int64_t Elements() const;
  Bytes SizeBytes() const { return Elements() * SizeOf(dtype); }
  // What users, weights files and checkpoints call it.
  const std::string& stored_name() const { return slice.has_value() ? slice->whole : name; }
};

// The tensor that weights files and checkpoints hold: the parameter itself unless it is a slice.
Parameter StoredTensor(const Parameter& parameter);
// "top[2/4]": what part `index` of `parts` of an operator or a parameter is called.
std::string PartName(const std::string& name, int32_t index, int32_t parts);
// The parameter's name and its aliases.
std::vector<std::string> NamesOf(const Parameter& parameter);

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

}  // namespace stagewright
