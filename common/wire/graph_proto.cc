#include "common/wire/graph_proto.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/check.h"
#include "common/base/one_line.h"
#include "common/graph/lengths.h"
#include "common/graph/operators/check_operators.h"

namespace stagewright {
namespace {

v1::Dtype ToProto(DType dtype) { return static_cast<v1::Dtype>(static_cast<int>(dtype) + 1); }

absl::StatusOr<DType> FromProto(v1::Dtype dtype, const std::string& where) {
  if (dtype <= v1::DTYPE_UNSPECIFIED || dtype > v1::DTYPE_BOOL) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": dtype ", static_cast<int>(dtype), " is not known"));
  }
  return static_cast<DType>(static_cast<int>(dtype) - 1);
}

v1::TensorMeta ToProto(const TensorMeta& meta) {
  v1::TensorMeta proto;
  proto.set_dtype(ToProto(meta.dtype));
  for (const SymInt& dim : meta.shape) {
    v1::SymInt* out = proto.add_shape();
    out->set_scale(dim.scale);
    out->set_offset(dim.offset);
  }
  if (meta.layout.has_value()) {
    proto.mutable_layout()->set_dim(meta.layout->dim);
    proto.mutable_layout()->set_outer(meta.layout->outer);
  }
  proto.set_mixed(meta.mixed);
  return proto;
}

absl::StatusOr<TensorMeta> FromProto(const v1::TensorMeta& proto, const std::string& where) {
  TensorMeta meta;
  ASSIGN_OR_RETURN(meta.dtype, FromProto(proto.dtype(), where));
  for (const v1::SymInt& dim : proto.shape()) meta.shape.push_back({dim.scale(), dim.offset()});
  if (proto.has_layout()) meta.layout = SampleLayout{proto.layout().dim(), proto.layout().outer()};
  meta.mixed = proto.mixed();
  return meta;
}

v1::Argument ToProto(const Argument& argument);

struct ArgumentWriter {
  v1::Argument& out;
  void operator()(ValueRef value) const { *out.mutable_value() = stagewright::ToProto(value); }
  void operator()(ParameterId id) const { out.set_parameter(id.value()); }
  void operator()(InputId id) const { out.set_input(id.value()); }
  void operator()(TotalId id) const { out.set_total(id.value()); }
  void operator()(SymInt value) const {
    out.mutable_integer()->set_scale(value.scale);
    out.mutable_integer()->set_offset(value.offset);
  }
  void operator()(double value) const { out.set_real(value); }
  void operator()(bool value) const { out.set_boolean(value); }
  void operator()(const std::string& value) const { out.set_text(value); }
  void operator()(None) const { out.set_none(true); }
  void operator()(const Argument::List& items) const {
    out.mutable_list();
    for (const Argument& item : items) *out.mutable_list()->add_items() = ToProto(item);
  }
  void operator()(DType dtype) const { out.set_dtype(ToProto(dtype)); }
  void operator()(const MemoryFormat& format) const { out.set_memory_format(format.name); }
};

v1::Argument ToProto(const Argument& argument) {
  v1::Argument proto;
  std::visit(ArgumentWriter{proto}, argument.value);
  return proto;
}

constexpr int kDeepestList = 16;  // Schemas nest two deep; more is a corrupt or hostile file.

absl::StatusOr<Argument> FromProto(const v1::Argument& proto, const std::string& where,
                                   int depth = 0) {
  switch (proto.kind_case()) {
    case v1::Argument::kValue:
      return Argument{stagewright::FromProto(proto.value())};
    case v1::Argument::kParameter:
      return Argument{ParameterId(proto.parameter())};
    case v1::Argument::kInput:
      return Argument{InputId(proto.input())};
    case v1::Argument::kTotal:
      return Argument{TotalId(proto.total())};
    case v1::Argument::kInteger:
      return Argument{SymInt{proto.integer().scale(), proto.integer().offset()}};
    case v1::Argument::kReal:
      return Argument{proto.real()};
    case v1::Argument::kBoolean:
      return Argument{proto.boolean()};
    case v1::Argument::kText:
      return Argument{proto.text()};
    case v1::Argument::kNone:
      return Argument{None{}};
    case v1::Argument::kMemoryFormat:
      return Argument{MemoryFormat{proto.memory_format()}};
    case v1::Argument::kDtype: {
      ASSIGN_OR_RETURN(DType dtype, FromProto(proto.dtype(), where));
      return Argument{dtype};
    }
    case v1::Argument::kList: {
      if (depth == kDeepestList)
        return absl::InvalidArgumentError(absl::StrCat(where, ": lists nest too deep"));
      Argument::List items;
      for (const v1::Argument& item : proto.list().items()) {
        ASSIGN_OR_RETURN(Argument value, FromProto(item, where, depth + 1));
        items.push_back(std::move(value));
      }
      return Argument{std::move(items)};
    }
    case v1::Argument::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(where, ": an argument has no value"));
}

template <typename Field>
void ToProto(const std::vector<NeighborBytes>& entries, Field* field) {
  for (const NeighborBytes& entry : entries) {
    v1::NeighborBytes* out = field->Add();
    out->set_node(entry.node.value());
    out->set_bytes(entry.bytes.count());
  }
}

template <typename Field>
std::vector<NeighborBytes> NeighborsFromProto(const Field& field) {
  std::vector<NeighborBytes> entries;
  for (const v1::NeighborBytes& entry : field) {
    entries.push_back({NodeId(entry.node()), Bytes(entry.bytes())});
  }
  return entries;
}

v1::ProfiledCost ToProto(const ProfiledCost& cost) {
  v1::ProfiledCost proto;
  proto.set_forward_ns(cost.forward.count());
  proto.set_backward_ns(cost.backward.count());
  proto.set_activation_bytes(cost.activation_bytes.count());
  proto.set_parameter_bytes(cost.parameter_bytes.count());
  proto.set_profiled_samples(cost.samples);
  if (cost.saved_bytes.has_value()) proto.set_saved_bytes(cost.saved_bytes->count());
  if (cost.resident_bytes.has_value()) proto.set_resident_bytes(cost.resident_bytes->count());
  ToProto(cost.edge_bytes, proto.mutable_edge_bytes());
  for (const ProfiledConfiguration& way : cost.configurations) {
    v1::ProfiledConfiguration* out = proto.add_configurations();
    out->set_tensor_parallel(way.tensor_parallel);
    out->set_recompute(way.recompute);
    out->set_time_ns(way.time.count());
    out->set_parameter_bytes(way.parameter_bytes.count());
    out->set_saved_bytes(way.saved_bytes.count());
    out->set_resident_bytes(way.resident_bytes.count());
    ToProto(way.sync_from, out->mutable_sync_from());
    ToProto(way.sync_to, out->mutable_sync_to());
  }
  return proto;
}

ProfiledCost FromProto(const v1::ProfiledCost& proto) {
  ProfiledCost cost{Nanos(proto.forward_ns()), Nanos(proto.backward_ns()),
                    Bytes(proto.activation_bytes()), Bytes(proto.parameter_bytes()),
                    proto.profiled_samples()};
  if (proto.has_saved_bytes()) cost.saved_bytes = Bytes(proto.saved_bytes());
  if (proto.has_resident_bytes()) cost.resident_bytes = Bytes(proto.resident_bytes());
  cost.edge_bytes = NeighborsFromProto(proto.edge_bytes());
  for (const v1::ProfiledConfiguration& way : proto.configurations()) {
    cost.configurations.push_back({way.tensor_parallel(), way.recompute(), Nanos(way.time_ns()),
                                   Bytes(way.parameter_bytes()), Bytes(way.saved_bytes()),
                                   Bytes(way.resident_bytes()), NeighborsFromProto(way.sync_from()),
                                   NeighborsFromProto(way.sync_to())});
  }
  return cost;
}

v1::Node ToProto(const Node& node) {
  v1::Node proto;
  proto.set_name(node.name);
  proto.set_target(node.target);
  for (const Argument& argument : node.args) *proto.add_args() = ToProto(argument);
  for (const NamedArgument& argument : node.kwargs) {
    v1::NamedArgument* out = proto.add_kwargs();
    out->set_name(argument.name);
    *out->mutable_value() = ToProto(argument.value);
  }
  for (const TensorMeta& meta : node.outputs) *proto.add_outputs() = ToProto(meta);
  proto.set_module(node.module);
  for (NodeId before : node.after) proto.add_after(before.value());
  proto.set_batch_dependent(node.batch_dependent);
  if (node.cost.has_value()) {
    *proto.mutable_cost() = ToProto(*node.cost);
  }
  return proto;
}

absl::StatusOr<Node> FromProto(const v1::Node& proto, const std::string& where) {
  Node node;
  node.name = proto.name();
  node.target = proto.target();
  for (int i = 0; i < proto.args_size(); ++i) {
    ASSIGN_OR_RETURN(Argument argument,
                     FromProto(proto.args(i), absl::StrCat(where, ".args[", i, "]")));
    node.args.push_back(std::move(argument));
  }
  for (const v1::NamedArgument& named : proto.kwargs()) {
    ASSIGN_OR_RETURN(Argument argument, FromProto(named.value(), absl::StrCat(where, ".kwargs \"",
                                                                              named.name(), "\"")));
    node.kwargs.push_back({named.name(), std::move(argument)});
  }
  for (int i = 0; i < proto.outputs_size(); ++i) {
    ASSIGN_OR_RETURN(TensorMeta meta,
                     FromProto(proto.outputs(i), absl::StrCat(where, ".outputs[", i, "]")));
    node.outputs.push_back(std::move(meta));
  }
  node.module = proto.module();
  for (int32_t before : proto.after()) node.after.push_back(NodeId(before));
  node.batch_dependent = proto.batch_dependent();
  if (proto.has_cost()) {
    node.cost = FromProto(proto.cost());
  }
  return node;
}

v1::ParameterSlice ToProto(const ParameterSlice& slice) {
  v1::ParameterSlice proto;
  proto.set_whole(slice.whole);
  for (const std::string& alias : slice.aliases) proto.add_aliases(alias);
  for (int64_t dim : slice.shape) proto.add_shape(dim);
  proto.set_dim(slice.dim);
  proto.set_begin(slice.begin);
  return proto;
}

ParameterSlice FromProto(const v1::ParameterSlice& proto) {
  return {proto.whole(),
          {proto.aliases().begin(), proto.aliases().end()},
          {proto.shape().begin(), proto.shape().end()},
          proto.dim(),
          proto.begin()};
}

absl::StatusOr<Parameter> FromProto(const v1::Parameter& proto, const std::string& where) {
  Parameter parameter;
  parameter.name = proto.name();
  ASSIGN_OR_RETURN(parameter.dtype, FromProto(proto.dtype(), where));
  parameter.shape.assign(proto.shape().begin(), proto.shape().end());
  parameter.trainable = proto.trainable();
  parameter.buffer = proto.buffer();
  parameter.aliases.assign(proto.aliases().begin(), proto.aliases().end());
  if (proto.has_data()) parameter.data = proto.data();
  if (proto.has_slice()) parameter.slice = FromProto(proto.slice());
  return parameter;
}

}  // namespace

v1::ValueRef ToProto(ValueRef value) {
  v1::ValueRef proto;
  proto.set_node(value.node.value());
  proto.set_output(value.output);
  return proto;
}

ValueRef FromProto(const v1::ValueRef& proto) { return {NodeId(proto.node()), proto.output()}; }

v1::Graph ToProto(const Graph& graph) {
  v1::Graph proto;
  proto.set_name(graph.name());
  for (const Node& node : graph.nodes()) *proto.add_nodes() = ToProto(node);
  for (const Parameter& parameter : graph.parameters()) {
    v1::Parameter* out = proto.add_parameters();
    out->set_name(parameter.name);
    out->set_dtype(ToProto(parameter.dtype));
    for (int64_t dim : parameter.shape) out->add_shape(dim);
    out->set_trainable(parameter.trainable);
    out->set_buffer(parameter.buffer);
    for (const std::string& alias : parameter.aliases) out->add_aliases(alias);
    if (parameter.data.has_value()) out->set_data(*parameter.data);
    if (parameter.slice.has_value()) *out->mutable_slice() = ToProto(*parameter.slice);
  }
  for (const Input& input : graph.inputs()) {
    v1::Input* out = proto.add_inputs();
    out->set_name(input.name);
    *out->mutable_meta() = ToProto(input.meta);
    out->set_role(input.role == InputRole::kTarget ? v1::Input::ROLE_TARGET
                                                   : v1::Input::ROLE_FEATURE);
  }
  if (graph.loss().has_value()) *proto.mutable_loss() = ToProto(*graph.loss());
  proto.set_loss_reduction(graph.loss_reduction() == LossReduction::kSum ? v1::LOSS_REDUCTION_SUM
                                                                         : v1::LOSS_REDUCTION_MEAN);
  if (graph.prediction().has_value()) *proto.mutable_prediction() = ToProto(*graph.prediction());
  proto.set_producer(graph.data().producer);
  for (const Node& node : graph.totals().nodes)
    *proto.mutable_totals()->add_nodes() = ToProto(node);
  for (ValueRef value : graph.totals().values)
    *proto.mutable_totals()->add_values() = ToProto(value);
  for (const StateUpdate& update : graph.state_updates()) {
    v1::StateUpdate* out = proto.add_state_updates();
    out->set_parameter(update.parameter.value());
    *out->mutable_value() = ToProto(update.value);
  }
  if (graph.samples() != SampleBounds{}) {
    proto.mutable_samples()->set_least(graph.samples().least);
    if (graph.samples().most != SampleBounds{}.most)
      proto.mutable_samples()->set_most(graph.samples().most);
  }
  return proto;
}

namespace {

absl::StatusOr<Graph> GraphOf(const v1::Graph& proto) {
  GraphData data;
  data.name = proto.name();
  data.producer = proto.producer();
  for (int i = 0; i < proto.nodes_size(); ++i) {
    const std::string where = absl::StrCat("nodes[", i, "] \"", proto.nodes(i).name(), "\"");
    ASSIGN_OR_RETURN(Node node, FromProto(proto.nodes(i), where));
    data.nodes.push_back(std::move(node));
  }
  for (int i = 0; i < proto.parameters_size(); ++i) {
    const std::string where =
        absl::StrCat("parameters[", i, "] \"", proto.parameters(i).name(), "\"");
    ASSIGN_OR_RETURN(Parameter parameter, FromProto(proto.parameters(i), where));
    data.parameters.push_back(std::move(parameter));
  }
  for (int i = 0; i < proto.inputs_size(); ++i) {
    const v1::Input& in = proto.inputs(i);
    const std::string where = absl::StrCat("inputs[", i, "] \"", in.name(), "\".meta");
    Input input{in.name(),
                {},
                in.role() == v1::Input::ROLE_TARGET ? InputRole::kTarget : InputRole::kFeature};
    ASSIGN_OR_RETURN(input.meta, FromProto(in.meta(), where));
    data.inputs.push_back(std::move(input));
  }
  if (proto.has_loss()) data.loss = stagewright::FromProto(proto.loss());
  if (proto.has_prediction()) data.prediction = stagewright::FromProto(proto.prediction());
  data.loss_reduction =
      proto.loss_reduction() == v1::LOSS_REDUCTION_SUM ? LossReduction::kSum : LossReduction::kMean;
  for (int i = 0; i < proto.totals().nodes_size(); ++i) {
    const v1::Node& in = proto.totals().nodes(i);
    ASSIGN_OR_RETURN(Node node,
                     FromProto(in, absl::StrCat("totals.nodes[", i, "] \"", in.name(), "\"")));
    data.totals.nodes.push_back(std::move(node));
  }
  for (const v1::ValueRef& value : proto.totals().values())
    data.totals.values.push_back(stagewright::FromProto(value));
  for (const v1::StateUpdate& update : proto.state_updates()) {
    data.state_updates.push_back(
        {ParameterId(update.parameter()), stagewright::FromProto(update.value())});
  }
  if (proto.samples().least() != 0) data.samples.least = proto.samples().least();
  if (proto.samples().most() != 0) data.samples.most = proto.samples().most();
  ASSIGN_OR_RETURN(Graph graph, Graph::Create(std::move(data)));
  RETURN_IF_ERROR(CheckOperators(graph.data()));
  return graph;
}

}  // namespace

absl::StatusOr<Graph> FromProto(const v1::Graph& proto) {
  auto graph = GraphOf(proto);
  if (!graph.ok()) return OneLine(graph.status());
  return graph;
}

absl::StatusOr<std::vector<Graph>> LengthsFromProto(const v1::Graph& proto, const Graph& graph) {
  // Each is a program of its own on every device.
  constexpr int kMost = 256;
  if (proto.lengths_size() > kMost) {
    return absl::InvalidArgumentError(absl::StrCat("lengths: there are ", proto.lengths_size(),
                                                   ", at most ", kMost,
                                                   " are taken; pad samples to fewer lengths"));
  }
  std::vector<Graph> lengths;
  lengths.reserve(static_cast<size_t>(proto.lengths_size()));
  for (int i = 0; i < proto.lengths_size(); ++i) {
    const std::string where = absl::StrCat("lengths[", i, "]");
    if (proto.lengths(i).lengths_size() > 0)
      return absl::InvalidArgumentError(absl::StrCat(where, ".lengths: there may be none"));
    auto other = FromProto(proto.lengths(i));
    if (!other.ok()) return Annotate(other.status(), where);
    RETURN_IF_ERROR(OneLine(Annotate(CheckSameButSizes(graph, *other), where)));
    const bool known = TakeSameSamples(graph, *other) ||
                       std::any_of(lengths.begin(), lengths.end(), [&](const Graph& before) {
                         return TakeSameSamples(before, *other);
                       });
    if (known) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": another graph takes the same samples, ", SampleText(*other)));
    }
    lengths.push_back(*std::move(other));
  }
  return lengths;
}

v1::Graph NamesOf(const v1::Graph& graph) {
  v1::Graph names;
  names.set_name(graph.name());
  for (const v1::Node& node : graph.nodes()) {
    v1::Node* out = names.add_nodes();
    out->set_name(node.name());
    out->set_module(node.module());
  }
  return names;
}

}  // namespace stagewright
