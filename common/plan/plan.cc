#include "common/plan/plan.h"

#include <cstring>
#include <string_view>
#include <type_traits>

#include "common/program/text.h"

namespace stagewright {
namespace {

// FNV-1a, 64 bits: simple, published and the same everywhere, which library hashes are not.
class Hasher {
 public:
  void Byte(uint8_t byte) { state_ = (state_ ^ byte) * 0x100000001b3; }
  void Number(uint64_t value) {
    for (int i = 0; i < 8; ++i) Byte(static_cast<uint8_t>(value >> (8 * i)));
  }
  void Signed(int64_t value) { Number(static_cast<uint64_t>(value)); }
  void Real(double value) {
    uint64_t bits = 0;
    static_assert(sizeof(bits) == sizeof(value));
    std::memcpy(&bits, &value, sizeof(bits));
    Number(bits);
  }
  // The length first, so that no two sequences of strings look alike.
  void Text(std::string_view text) {
    Number(text.size());
    for (char c : text) Byte(static_cast<uint8_t>(c));
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

void Add(Hasher& hasher, const TensorMeta& meta) {
  hasher.Byte(static_cast<uint8_t>(meta.dtype));
  hasher.Number(meta.shape.size());
  for (const SymInt& dim : meta.shape) {
    hasher.Signed(dim.scale);
    hasher.Signed(dim.offset);
  }
  // What older graphs do not have leaves their fingerprints as they were.
  if (meta.layout.has_value()) {
    hasher.Signed(meta.layout->dim);
    hasher.Signed(meta.layout->outer);
  }
  if (meta.mixed) hasher.Byte(1);
}

void Add(Hasher& hasher, ValueRef value) {
  hasher.Signed(value.node.value());
  hasher.Signed(value.output);
}

void Add(Hasher& hasher, const std::optional<ValueRef>& value) {
  hasher.Byte(value.has_value() ? 1 : 0);
  if (value.has_value()) Add(hasher, *value);
}

void Add(Hasher& hasher, const Argument& argument) {
  hasher.Byte(static_cast<uint8_t>(argument.value.index()));
  std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, ValueRef>) {
          Add(hasher, value);
        } else if constexpr (std::is_same_v<T, ParameterId> || std::is_same_v<T, InputId> ||
                             std::is_same_v<T, TotalId>) {
          hasher.Signed(value.value());
        } else if constexpr (std::is_same_v<T, SymInt>) {
          hasher.Signed(value.scale);
          hasher.Signed(value.offset);
        } else if constexpr (std::is_same_v<T, double>) {
          hasher.Real(value);
        } else if constexpr (std::is_same_v<T, bool>) {
          hasher.Byte(value ? 1 : 0);
        } else if constexpr (std::is_same_v<T, std::string>) {
          hasher.Text(value);
        } else if constexpr (std::is_same_v<T, Argument::List>) {
          hasher.Number(value.size());
          for (const Argument& item : value) Add(hasher, item);
        } else if constexpr (std::is_same_v<T, DType>) {
          hasher.Byte(static_cast<uint8_t>(value));
        } else if constexpr (std::is_same_v<T, MemoryFormat>) {
          hasher.Text(value.name);
        } else {
          static_assert(std::is_same_v<T, None>);
        }
      },
      argument.value);
}

void Add(Hasher& hasher, const std::vector<NeighborBytes>& entries) {
  hasher.Number(entries.size());
  for (const NeighborBytes& entry : entries) {
    hasher.Signed(entry.node.value());
    hasher.Signed(entry.bytes.count());
  }
}

void Add(Hasher& hasher, const ProfiledCost& cost) {
  for (int64_t figure :
       {cost.forward.count(), cost.backward.count(), cost.activation_bytes.count(),
        cost.parameter_bytes.count(), cost.samples, cost.saved_bytes.value_or(-1).count(),
        cost.resident_bytes.value_or(-1).count()}) {
    hasher.Signed(figure);
  }
  Add(hasher, cost.edge_bytes);
  hasher.Number(cost.configurations.size());
  for (const ProfiledConfiguration& way : cost.configurations) {
    for (int64_t figure :
         {int64_t{way.tensor_parallel}, int64_t{way.recompute}, way.time.count(),
          way.parameter_bytes.count(), way.saved_bytes.count(), way.resident_bytes.count()}) {
      hasher.Signed(figure);
    }
    Add(hasher, way.sync_from);
    Add(hasher, way.sync_to);
  }
}

void Add(Hasher& hasher, const Node& node) {
  hasher.Text(node.name);
  hasher.Text(node.target);
  hasher.Number(node.args.size());
  for (const Argument& argument : node.args) Add(hasher, argument);
  hasher.Number(node.kwargs.size());
  for (const NamedArgument& argument : node.kwargs) {
    hasher.Text(argument.name);
    Add(hasher, argument.value);
  }
  hasher.Number(node.outputs.size());
  for (const TensorMeta& meta : node.outputs) Add(hasher, meta);
  hasher.Text(node.module);
  hasher.Number(node.after.size());
  for (NodeId before : node.after) hasher.Signed(before.value());
  hasher.Byte(node.cost.has_value() ? 1 : 0);
  if (node.cost.has_value()) Add(hasher, *node.cost);
  hasher.Byte(node.batch_dependent ? 1 : 0);
}

void Add(Hasher& hasher, const Parameter& parameter) {
  hasher.Text(parameter.name);
  hasher.Byte(static_cast<uint8_t>(parameter.dtype));
  hasher.Number(parameter.shape.size());
  for (int64_t dim : parameter.shape) hasher.Signed(dim);
  hasher.Byte(parameter.trainable ? 1 : 0);
  hasher.Byte(parameter.buffer ? 1 : 0);
  hasher.Number(parameter.aliases.size());
  for (const std::string& alias : parameter.aliases) hasher.Text(alias);
  if (parameter.data.has_value()) hasher.Text(*parameter.data);
  if (!parameter.slice.has_value()) return;
  hasher.Text(parameter.slice->whole);
  for (const std::string& alias : parameter.slice->aliases) hasher.Text(alias);
  for (int64_t dim : parameter.slice->shape) hasher.Signed(dim);
  hasher.Signed(parameter.slice->dim);
  hasher.Signed(parameter.slice->begin);
}

// Nothing, for a graph without them.
void AddTrainingState(Hasher& hasher, const Graph& graph) {
  for (const Node& node : graph.totals().nodes) Add(hasher, node);
  for (ValueRef value : graph.totals().values) Add(hasher, value);
  for (const StateUpdate& update : graph.state_updates()) {
    hasher.Signed(update.parameter.value());
    Add(hasher, update.value);
  }
  if (graph.samples() != SampleBounds{}) {
    hasher.Signed(graph.samples().least);
    hasher.Signed(graph.samples().most);
  }
}

}  // namespace

uint64_t Fingerprint(const Graph& graph) {
  Hasher hasher;
  hasher.Text(graph.name());
  hasher.Number(graph.nodes().size());
  for (const Node& node : graph.nodes()) Add(hasher, node);
  hasher.Number(graph.parameters().size());
  for (const Parameter& parameter : graph.parameters()) Add(hasher, parameter);
  hasher.Number(graph.inputs().size());
  for (const Input& input : graph.inputs()) {
    hasher.Text(input.name);
    Add(hasher, input.meta);
    hasher.Byte(static_cast<uint8_t>(input.role));
  }
  Add(hasher, graph.loss());
  hasher.Byte(static_cast<uint8_t>(graph.loss_reduction()));
  Add(hasher, graph.prediction());
  AddTrainingState(hasher, graph);
  return hasher.value();
}

uint64_t Fingerprint(const Program& program, uint64_t graph_fingerprint) {
  Hasher hasher;
  hasher.Number(graph_fingerprint);
  hasher.Text(ToText(program));
  return hasher.value();
}

}  // namespace stagewright
