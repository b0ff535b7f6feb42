#include "common/rewrite/taken.h"

#include <numeric>
#include <string_view>
#include <variant>

#include "common/graph/aten.h"

namespace stagewright {
namespace {

std::optional<int64_t> Integer(const Argument& argument) {
  const auto* number = std::get_if<SymInt>(&argument.value);
  if (number == nullptr || number->scale != 0) return std::nullopt;
  return number->offset;
}

// The integer at a place, `otherwise` if it is not given.
std::optional<int64_t> IntegerAt(const Node& node, size_t place, int64_t otherwise) {
  if (place >= node.args.size() || std::holds_alternative<None>(node.args[place].value))
    return otherwise;
  return Integer(node.args[place]);
}

bool RemovesDimension(std::string_view name) { return name == "select" || name == "unbind"; }

// Where the dimension stands among the arguments; nothing for other operators.
std::optional<size_t> PlaceOfDimension(std::string_view name) {
  if (name == "select" || name == "unbind" || name == "slice") return 1;
  if (name == "split" || name == "split_with_sizes" || name == "chunk") return 2;
  return std::nullopt;
}

// All sizes in which split_with_sizes cuts are `size`.
bool AllAre(const Argument& sizes, int64_t size) {
  const auto* list = std::get_if<Argument::List>(&sizes.value);
  if (list == nullptr) return false;
  for (const Argument& item : *list) {
    if (Integer(item) != size) return false;
  }
  return true;
}

// The one part that a select or a slice is.
std::optional<int32_t> OnePart(const Node& node, std::string_view name, int64_t size,
                               int64_t part) {
  auto begin = IntegerAt(node, 2, 0);
  if (!begin.has_value()) return std::nullopt;
  if (*begin < 0) *begin += size;
  auto end = *begin + 1;
  if (name == "slice") {
    const auto given = IntegerAt(node, 3, size);
    if (!given.has_value() || IntegerAt(node, 4, 1) != 1) return std::nullopt;
    end = *given < 0 ? *given + size : std::min(*given, size);
  }
  if (*begin < 0 || end > size || end - *begin != part || *begin % part != 0) return std::nullopt;
  return static_cast<int32_t>(*begin / part);
}

}  // namespace

std::optional<std::vector<int32_t>> TakenParts(const Graph& graph, NodeId id,
                                               const PartsOf& parts_of) {
  const Node& node = graph.node(id);
  const std::string_view name = AtenName(node.target);
  const auto place = PlaceOfDimension(name);
  if (!place.has_value() || node.args.empty() || !node.kwargs.empty()) return std::nullopt;
  const auto* value = std::get_if<ValueRef>(&node.args[0].value);
  if (value == nullptr) return std::nullopt;
  const auto parts = parts_of(*value);
  auto dim = IntegerAt(node, *place, 0);
  if (!parts.has_value() || !dim.has_value()) return std::nullopt;
  const TensorMeta& meta = graph.meta(*value);
  if (*dim < 0) *dim += static_cast<int64_t>(meta.shape.size());
  const int64_t size = meta.shape[parts->dim].offset, part = size / parts->parts;
  if (*dim != parts->dim || (RemovesDimension(name) && part != 1)) return std::nullopt;
  if (name == "select" || name == "slice") {
    const auto one = OnePart(node, name, size, part);
    return one.has_value() ? std::optional(std::vector{*one}) : std::nullopt;
  }
  if (node.outputs.size() != static_cast<size_t>(parts->parts)) return std::nullopt;
  if (name == "split" && IntegerAt(node, 1, 0) != part) return std::nullopt;
  if (name == "split_with_sizes" && !AllAre(node.args[1], part)) return std::nullopt;
  std::vector<int32_t> all(node.outputs.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Node TakenFrom(const Graph& graph, NodeId id, int32_t output, const InParts& read, NodeId part) {
  Node node = graph.node(id);
  const std::string_view name = AtenName(node.target);
  node.outputs = {graph.node(id).outputs[output]};
  if (graph.node(id).outputs.size() > 1)
    node.name = PartName(node.name, output, static_cast<int32_t>(graph.node(id).outputs.size()));
  node.args = {{ValueRef{part, 0}}};
  node.kwargs.clear();
  if (RemovesDimension(name)) {
    node.target = "aten.select.int";
    node.args.push_back({SymInt{0, read.dim}});
    node.args.push_back({SymInt{0, 0}});
  } else {
    node.target = "aten.alias.default";
  }
  return node;
}

}  // namespace stagewright
