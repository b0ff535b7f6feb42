#include "common/graph/check_graph.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

// Sizes must fit with room to spare, so that sums over a graph cannot overflow.
constexpr int64_t kMostElements = int64_t{1} << 50;

absl::Status CheckShape(const TensorMeta& meta, absl::string_view where) {
  double elements = 1;
  for (const SymInt& dim : meta.shape) {
    if (dim.At(1) < 0 || dim.scale < 0) {
      return absl::InvalidArgumentError(absl::StrCat(where, ".shape: dimension ", dim.scale,
                                                     " * samples + ", dim.offset, " is negative"));
    }
    elements *= static_cast<double>(dim.At(1));
  }
  if (elements > static_cast<double>(kMostElements)) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ".shape: ", elements, " elements per sample overflow"));
  }
  return absl::OkStatus();
}

absl::Status CheckLayout(const TensorMeta& meta, absl::string_view where) {
  if (!meta.layout.has_value()) return absl::OkStatus();
  const auto [dim, outer] = *meta.layout;
  const auto bad = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(where, ".samples: ", what...));
  };
  if (meta.mixed) return bad("given for a value that is mixed");
  if (dim < 0 || dim >= static_cast<int32_t>(meta.shape.size()))
    return bad("dimension ", dim, " does not exist");
  for (size_t i = 0; i < meta.shape.size(); ++i) {
    const auto [scale, offset] = meta.shape[i];
    if (static_cast<int32_t>(i) != dim) {
      if (scale != 0) return bad("dimension ", i, " depends on the number of samples, too");
    } else if (scale < 1 || offset != 0 || outer < 1 || scale % outer != 0) {
      return bad("dimension ", dim, " has ", scale, " * samples + ", offset, " entries, not ",
                 outer, " * samples * inner");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMeta(const TensorMeta& meta, const std::string& where) {
  RETURN_IF_ERROR(CheckShape(meta, where));
  return CheckLayout(meta, where);
}

struct CostField {
  const char* name;
  int64_t value;
};

absl::Status CheckFields(std::initializer_list<CostField> fields, absl::string_view where) {
  for (const auto& [field, value] : fields) {
    if (value < 0)
      return absl::InvalidArgumentError(absl::StrCat(where, ".", field, " is negative"));
    if (value > kMostElements)
      return absl::InvalidArgumentError(absl::StrCat(where, ".", field, " overflows"));
  }
  return absl::OkStatus();
}

absl::Status CheckCost(const ProfiledCost& cost, const std::string& where) {
  RETURN_IF_ERROR(CheckFields({{"forward_ns", cost.forward.count()},
                               {"backward_ns", cost.backward.count()},
                               {"activation_bytes", cost.activation_bytes.count()},
                               {"parameter_bytes", cost.parameter_bytes.count()},
                               {"profiled_samples", cost.samples - 1},
                               {"saved_bytes", cost.saved_bytes.value_or(0).count()},
                               {"resident_bytes", cost.resident_bytes.value_or(0).count()}},
                              where));
  for (size_t i = 0; i < cost.configurations.size(); ++i) {
    const ProfiledConfiguration& way = cost.configurations[i];
    const std::string at = absl::StrCat(where, ".configurations[", i, "]");
    RETURN_IF_ERROR(CheckFields({{"tensor_parallel", way.tensor_parallel - 1},
                                 {"time_ns", way.time.count()},
                                 {"parameter_bytes", way.parameter_bytes.count()},
                                 {"saved_bytes", way.saved_bytes.count()},
                                 {"resident_bytes", way.resident_bytes.count()}},
                                at));
    if (i == 0) continue;
    const ProfiledConfiguration& before = cost.configurations[i - 1];
    if (std::pair(before.tensor_parallel, before.recompute) >=
        std::pair(way.tensor_parallel, way.recompute)) {
      return absl::InvalidArgumentError(absl::StrCat(at, " is out of order or given twice"));
    }
  }
  return absl::OkStatus();
}

// Every entry names another of `neighbors`, in ascending order.
absl::Status CheckNeighbors(const std::vector<NeighborBytes>& entries,
                            std::span<const int32_t> neighbors, const std::string& where) {
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string at = absl::StrCat(where, "[", i, "]");
    RETURN_IF_ERROR(CheckFields({{"bytes", entries[i].bytes.count()}}, at));
    if (!std::binary_search(neighbors.begin(), neighbors.end(), entries[i].node.value())) {
      return absl::InvalidArgumentError(
          absl::StrCat(at, ": no edge joins it to node ", entries[i].node.value()));
    }
    if (i > 0 && entries[i].node <= entries[i - 1].node)
      return absl::InvalidArgumentError(absl::StrCat(at, " is out of order or given twice"));
  }
  return absl::OkStatus();
}

absl::Status CheckParameters(const std::vector<Parameter>& parameters) {
  absl::flat_hash_set<std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const std::string where = absl::StrCat("parameters[", i, "] \"", parameter.name, "\"");
    if (parameter.name.empty())
      return absl::InvalidArgumentError(absl::StrCat("parameters[", i, "].name is empty"));
    if (!names.insert(parameter.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": the name is used twice"));
    }
    for (const std::string& alias : parameter.aliases) {
      if (!names.insert(alias).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(where, ".aliases: \"", alias, "\" is used twice"));
      }
    }
    TensorMeta meta{parameter.dtype, {}};
    for (int64_t dim : parameter.shape) meta.shape.push_back({0, dim});
    RETURN_IF_ERROR(CheckShape(meta, where));
    if (parameter.data.has_value() &&
        (parameter.trainable ||
         static_cast<int64_t>(parameter.data->size()) != parameter.SizeBytes())) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ".data: ", parameter.data->size(), " bytes for a ",
          parameter.trainable ? "trainable tensor" : "tensor", " of ", parameter.SizeBytes()));
    }
    if (parameter.trainable && !IsFloating(parameter.dtype)) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " is trainable but not floating-point"));
    }
  }
  return absl::OkStatus();
}

// Checks that a reference to a value stays inside the graph.
absl::Status CheckValue(const GraphData& data, ValueRef value, absl::string_view where) {
  if (!value.node.valid() || value.node.index() >= data.nodes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": node ", value.node.value(), " does not exist"));
  }
  const auto outputs = static_cast<int32_t>(data.nodes[value.node.index()].outputs.size());
  if (value.output < 0 || value.output >= outputs) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": output ", value.output, " of node \"",
                                                   data.nodes[value.node.index()].name,
                                                   "\" does not exist"));
  }
  return absl::OkStatus();
}

absl::Status CheckNode(const GraphData& data, size_t index) {
  const Node& node = data.nodes[index];
  if (node.name.empty())
    return absl::InvalidArgumentError(absl::StrCat("nodes[", index, "].name is empty"));
  const std::string where = absl::StrCat("nodes[", index, "] \"", node.name, "\"");
  if (node.cost.has_value()) {
    RETURN_IF_ERROR(CheckCost(*node.cost, where + ".cost"));
  } else {
    if (node.target.empty())
      return absl::InvalidArgumentError(absl::StrCat(where, ".target is empty"));
    if (node.outputs.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ".outputs: the shape of its output is missing"));
    }
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    RETURN_IF_ERROR(CheckMeta(node.outputs[i], absl::StrCat(where, ".outputs[", i, "]")));
  }
  for (NodeId before : node.after) {
    if (!before.valid() || before.index() >= data.nodes.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ".after: node ", before.value(), " does not exist"));
    }
  }
  absl::Status status;
  ForEachLeaf(node, [&](const Argument& leaf) {
    if (!status.ok()) return;
    if (const auto* value = std::get_if<ValueRef>(&leaf.value)) {
      status = CheckValue(data, *value, absl::StrCat(where, ".args"));
    } else if (const auto* parameter = std::get_if<ParameterId>(&leaf.value)) {
      if (!parameter->valid() || parameter->index() >= data.parameters.size()) {
        status = absl::InvalidArgumentError(
            absl::StrCat(where, ".args: parameter ", parameter->value(), " does not exist"));
      }
    } else if (const auto* input = std::get_if<InputId>(&leaf.value)) {
      if (!input->valid() || input->index() >= data.inputs.size()) {
        status = absl::InvalidArgumentError(
            absl::StrCat(where, ".args: input ", input->value(), " does not exist"));
      }
    } else if (const auto* total = std::get_if<TotalId>(&leaf.value)) {
      if (!total->valid() || total->index() >= data.totals.values.size()) {
        status = absl::InvalidArgumentError(
            absl::StrCat(where, ".args: total ", total->value(), " does not exist"));
      }
    }
  });
  return status;
}

// What a node of the totals may read: earlier ones, inputs, and parameters that stay as they are.
absl::Status CheckTotalNode(const GraphData& data, size_t index) {
  const Node& node = data.totals.nodes[index];
  const std::string where = absl::StrCat("totals.nodes[", index, "] \"", node.name, "\"");
  if (node.target.empty() || node.outputs.empty())
    return absl::InvalidArgumentError(absl::StrCat(where, ": target or outputs are missing"));
  for (size_t i = 0; i < node.outputs.size(); ++i)
    RETURN_IF_ERROR(CheckMeta(node.outputs[i], absl::StrCat(where, ".outputs[", i, "]")));
  const auto bad = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(where, ".args: ", what...));
  };
  absl::Status status;
  ForEachLeaf(node, [&](const Argument& leaf) {
    if (!status.ok()) return;
    if (const auto* value = std::get_if<ValueRef>(&leaf.value)) {
      if (!value->node.valid() || value->node.index() >= index || value->output < 0 ||
          static_cast<size_t>(value->output) >=
              data.totals.nodes[value->node.index()].outputs.size()) {
        status = bad("node ", value->node.value(), " is not one before it");
      }
    } else if (const auto* parameter = std::get_if<ParameterId>(&leaf.value)) {
      if (!parameter->valid() || parameter->index() >= data.parameters.size()) {
        status = bad("parameter ", parameter->value(), " does not exist");
      } else if (data.parameters[parameter->index()].trainable ||
                 std::any_of(data.state_updates.begin(), data.state_updates.end(),
                             [&](const StateUpdate& s) { return s.parameter == *parameter; })) {
        status = bad("parameter \"", data.parameters[parameter->index()].name, "\" changes");
      }
    } else if (const auto* input = std::get_if<InputId>(&leaf.value)) {
      if (!input->valid() || input->index() >= data.inputs.size())
        status = bad("input ", input->value(), " does not exist");
    } else if (std::holds_alternative<TotalId>(leaf.value)) {
      status = bad("a total does not read totals");
    }
  });
  return status;
}

absl::Status CheckTotals(const GraphData& data) {
  for (size_t i = 0; i < data.totals.nodes.size(); ++i) RETURN_IF_ERROR(CheckTotalNode(data, i));
  for (size_t i = 0; i < data.totals.values.size(); ++i) {
    const ValueRef value = data.totals.values[i];
    const std::string where = absl::StrCat("totals.values[", i, "]");
    if (!value.node.valid() || value.node.index() >= data.totals.nodes.size() || value.output < 0 ||
        static_cast<size_t>(value.output) >= data.totals.nodes[value.node.index()].outputs.size()) {
      return absl::InvalidArgumentError(absl::StrCat(where, " does not exist"));
    }
    if (data.totals.nodes[value.node.index()].outputs[value.output].DependsOnBatch()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": its shape depends on the number of samples"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckLoss(const GraphData& data) {
  if (data.prediction.has_value())
    RETURN_IF_ERROR(CheckValue(data, *data.prediction, "prediction"));
  if (!data.loss.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckValue(data, *data.loss, "loss"));
  const TensorMeta& meta = data.nodes[data.loss->node.index()].outputs[data.loss->output];
  if (!meta.shape.empty() || !IsFloating(meta.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("loss: node \"",
                                                   data.nodes[data.loss->node.index()].name,
                                                   "\" is not a floating-point scalar"));
  }
  return absl::OkStatus();
}

absl::Status CheckStateUpdates(const GraphData& data) {
  std::vector<bool> updated(data.parameters.size(), false);
  for (size_t i = 0; i < data.state_updates.size(); ++i) {
    const auto& [id, value] = data.state_updates[i];
    const std::string where = absl::StrCat("state_updates[", i, "]");
    const auto bad = [&](const auto&... what) {
      return absl::InvalidArgumentError(absl::StrCat(where, what...));
    };
    if (!id.valid() || id.index() >= data.parameters.size())
      return bad(": parameter ", id.value(), " does not exist");
    const Parameter& parameter = data.parameters[id.index()];
    if (parameter.trainable) return bad(": \"", parameter.name, "\" is trainable");
    if (updated[id.index()]) return bad(": \"", parameter.name, "\" is updated twice");
    updated[id.index()] = true;
    RETURN_IF_ERROR(CheckValue(data, value, absl::StrCat(where, ".value")));
    const Node& node = data.nodes[value.node.index()];
    if (node.cost.has_value()) return bad(".value: planning-only nodes have no values");
    const TensorMeta& meta = node.outputs[value.output];
    const bool same = meta.dtype == parameter.dtype &&
                      std::equal(meta.shape.begin(), meta.shape.end(), parameter.shape.begin(),
                                 parameter.shape.end(), [](const SymInt& dim, int64_t size) {
                                   return dim == SymInt{0, size};
                                 });
    if (!same)
      return bad(": \"", parameter.name, "\" and node \"", node.name, "\" differ in shape or type");
  }
  return absl::OkStatus();
}

absl::Status CheckInputs(const std::vector<Input>& inputs) {
  absl::flat_hash_set<std::string> input_names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string where = absl::StrCat("inputs[", i, "] \"", inputs[i].name, "\"");
    if (inputs[i].name.empty() || !input_names.insert(inputs[i].name).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": the name is empty or used twice"));
    }
    RETURN_IF_ERROR(CheckMeta(inputs[i].meta, where));
    if (inputs[i].meta.Samples() != SampleLayout{}) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ".meta: the first dimension must be the batch, and only it"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNodes(const GraphData& data) {
  absl::flat_hash_set<std::string> names;
  for (size_t i = 0; i < data.nodes.size(); ++i) {
    RETURN_IF_ERROR(CheckNode(data, i));
    if (!names.insert(data.nodes[i].name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("nodes[", i, "] \"", data.nodes[i].name, "\": the name is used twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status BadSlice(const Parameter& parameter, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("parameters: \"", parameter.name, "\".slice: ", what));
}

absl::Status CheckSliceShape(const Parameter& parameter) {
  const ParameterSlice& slice = *parameter.slice;
  const auto rank = static_cast<int32_t>(slice.shape.size());
  if (slice.whole.empty()) return BadSlice(parameter, "the tensor has no name");
  if (slice.dim < 0 || slice.dim >= rank || slice.shape.size() != parameter.shape.size())
    return BadSlice(parameter, absl::StrCat("dimension ", slice.dim, " does not exist"));
  if (parameter.data.has_value() || !parameter.aliases.empty())
    return BadSlice(parameter, "a slice is no constant and has no aliases of its own");
  for (int32_t d = 0; d < rank; ++d) {
    const int64_t size = parameter.shape[d];
    const bool fits = d == slice.dim ? slice.begin >= 0 && size > 0 && slice.shape[d] >= size &&
                                           slice.begin <= slice.shape[d] - size
                                     : size == slice.shape[d];
    if (!fits) return BadSlice(parameter, absl::StrCat("dimension ", d, " leaves the tensor"));
  }
  return absl::OkStatus();
}

bool SameTensor(const Parameter& a, const Parameter& b) {
  return a.slice->shape == b.slice->shape && a.slice->dim == b.slice->dim &&
         a.slice->aliases == b.slice->aliases && a.dtype == b.dtype && a.trainable == b.trainable &&
         a.buffer == b.buffer;
}

// All of a tensor, each entry once.
absl::Status CheckTiles(std::vector<const Parameter*> slices) {
  std::sort(slices.begin(), slices.end(), [](const Parameter* a, const Parameter* b) {
    return a->slice->begin < b->slice->begin;
  });
  int64_t end = 0;
  for (const Parameter* parameter : slices) {
    const ParameterSlice& slice = *parameter->slice;
    if (!SameTensor(*parameter, *slices.front()))
      return BadSlice(*parameter, absl::StrCat("\"", slice.whole, "\" is told in two ways"));
    if (slice.begin != end)
      return BadSlice(*parameter, absl::StrCat("begins at ", slice.begin, ", not at ", end));
    end += parameter->shape[slice.dim];
  }
  const ParameterSlice& last = *slices.back()->slice;
  if (end != last.shape[last.dim]) {
    return BadSlice(*slices.back(), absl::StrCat("ends at ", end, ", \"", last.whole, "\" at ",
                                                 last.shape[last.dim]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSlices(const std::vector<Parameter>& parameters) {
  std::map<std::string, std::vector<const Parameter*>> slices;
  for (const Parameter& parameter : parameters) {
    if (!parameter.slice.has_value()) continue;
    RETURN_IF_ERROR(CheckSliceShape(parameter));
    slices[parameter.slice->whole].push_back(&parameter);
  }
  if (slices.empty()) return absl::OkStatus();
  std::set<std::string> names;
  for (const Parameter& parameter : parameters) {
    names.insert(parameter.name);
    names.insert(parameter.aliases.begin(), parameter.aliases.end());
  }
  for (const auto& [whole, of_one] : slices) {
    RETURN_IF_ERROR(CheckTiles(of_one));
    for (const std::string& name : NamesOf(StoredTensor(*of_one.front()))) {
      if (!names.insert(name).second)
        return BadSlice(*of_one.front(), absl::StrCat("the name \"", name, "\" is used twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGraphData(const GraphData& data) {
  if (data.nodes.empty()) return absl::InvalidArgumentError("nodes: the graph is empty");
  if (data.nodes.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max() / 4)) {
    return absl::InvalidArgumentError("nodes: too many");
  }
  RETURN_IF_ERROR(CheckParameters(data.parameters));
  RETURN_IF_ERROR(CheckSlices(data.parameters));
  RETURN_IF_ERROR(CheckInputs(data.inputs));
  RETURN_IF_ERROR(CheckNodes(data));
  RETURN_IF_ERROR(CheckLoss(data));
  RETURN_IF_ERROR(CheckTotals(data));
  RETURN_IF_ERROR(CheckStateUpdates(data));
  if (data.samples.least < 1 || data.samples.most < data.samples.least) {
    return absl::InvalidArgumentError(absl::StrCat("samples: from ", data.samples.least, " to ",
                                                   data.samples.most, " is no range"));
  }
  return absl::OkStatus();
}

absl::Status CheckCostEdges(const GraphData& data, const Dag& dag) {
  for (size_t v = 0; v < data.nodes.size(); ++v) {
    if (!data.nodes[v].cost.has_value()) continue;
    const ProfiledCost& cost = *data.nodes[v].cost;
    const auto id = static_cast<int32_t>(v);
    const std::string where = absl::StrCat("nodes[", v, "] \"", data.nodes[v].name, "\".cost");
    RETURN_IF_ERROR(
        CheckNeighbors(cost.edge_bytes, dag.Successors(id), absl::StrCat(where, ".edge_bytes")));
    for (size_t i = 0; i < cost.configurations.size(); ++i) {
      const ProfiledConfiguration& way = cost.configurations[i];
      const std::string at = absl::StrCat(where, ".configurations[", i, "]");
      RETURN_IF_ERROR(CheckNeighbors(way.sync_from, dag.Predecessors(id), at + ".sync_from"));
      RETURN_IF_ERROR(CheckNeighbors(way.sync_to, dag.Successors(id), at + ".sync_to"));
    }
  }
  return absl::OkStatus();
}

}  // namespace stagewright
