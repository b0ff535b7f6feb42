#include "common/graph/lengths.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagewright {
namespace {

bool IsNumber(const Argument& argument) {
  return std::holds_alternative<SymInt>(argument.value) ||
         std::holds_alternative<double>(argument.value);
}

bool Same(const Argument& argument, const Argument& other) {
  if (argument.value.index() != other.value.index()) return false;
  if (const auto* items = std::get_if<Argument::List>(&argument.value)) {
    const auto& others = std::get<Argument::List>(other.value);
    return std::equal(items->begin(), items->end(), others.begin(), others.end(), Same);
  }
  return IsNumber(argument) || argument == other;
}

bool SameKind(const TensorMeta& meta, const TensorMeta& other) {
  return meta.dtype == other.dtype && meta.shape.size() == other.shape.size();
}

bool Same(const Node& node, const Node& other) {
  return node.target == other.target && node.batch_dependent == other.batch_dependent &&
         node.after == other.after && node.cost == other.cost &&
         std::equal(node.args.begin(), node.args.end(), other.args.begin(), other.args.end(),
                    [](const Argument& a, const Argument& b) { return Same(a, b); }) &&
         std::equal(node.kwargs.begin(), node.kwargs.end(), other.kwargs.begin(),
                    other.kwargs.end(),
                    [](const NamedArgument& a, const NamedArgument& b) {
                      return a.name == b.name && Same(a.value, b.value);
                    }) &&
         std::equal(node.outputs.begin(), node.outputs.end(), other.outputs.begin(),
                    other.outputs.end(), SameKind);
}

bool Same(const Parameter& parameter, const Parameter& other) {
  return parameter.name == other.name && parameter.dtype == other.dtype &&
         parameter.shape == other.shape && parameter.trainable == other.trainable &&
         parameter.buffer == other.buffer && parameter.aliases == other.aliases &&
         parameter.data == other.data && parameter.slice == other.slice;
}

bool Same(const Input& input, const Input& other) {
  return input.name == other.name && input.role == other.role && SameKind(input.meta, other.meta);
}

// The first entry that is not the same, or the number of entries.
template <typename Range>
absl::Status CheckEach(absl::string_view field, const Range& entries, const Range& others) {
  if (entries.size() != others.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": there are ", others.size(), ", not ", entries.size()));
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (Same(entries[i], others[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat(field, "[", i, "] \"", others[i].name,
                                                   "\" is not that of the graph: they may differ "
                                                   "in sizes and numbers only"));
  }
  return absl::OkStatus();
}

bool SameUpdates(const Graph& graph, const Graph& other) {
  return std::equal(graph.state_updates().begin(), graph.state_updates().end(),
                    other.state_updates().begin(), other.state_updates().end());
}

}  // namespace

absl::Status CheckSameButSizes(const Graph& graph, const Graph& other) {
  RETURN_IF_ERROR(CheckEach("nodes", graph.nodes(), other.nodes()));
  RETURN_IF_ERROR(CheckEach("parameters", graph.parameters(), other.parameters()));
  RETURN_IF_ERROR(CheckEach("inputs", graph.inputs(), other.inputs()));
  RETURN_IF_ERROR(CheckEach("totals.nodes", graph.totals().nodes, other.totals().nodes));
  const std::pair<bool, const char*> rest[] = {
      {graph.loss() == other.loss(), "loss"},
      {graph.loss_reduction() == other.loss_reduction(), "loss_reduction"},
      {graph.prediction() == other.prediction(), "prediction"},
      {graph.totals().values == other.totals().values, "totals.values"},
      {SameUpdates(graph, other), "state_updates"}};
  for (const auto& [same, field] : rest) {
    if (!same) return absl::InvalidArgumentError(absl::StrCat(field, " is not that of the graph"));
  }
  return absl::OkStatus();
}

bool TakeSameSamples(const Graph& graph, const Graph& other) {
  return std::equal(graph.inputs().begin(), graph.inputs().end(), other.inputs().begin(),
                    other.inputs().end(), [](const Input& a, const Input& b) {
                      return a.name == b.name && a.meta.shape == b.meta.shape;
                    });
}

std::string SampleText(const Graph& graph) {
  std::vector<std::string> inputs;
  for (const Input& input : graph.inputs()) {
    std::vector<int64_t> sizes;
    for (size_t i = 1; i < input.meta.shape.size(); ++i)
      sizes.push_back(input.meta.shape[i].offset);
    inputs.push_back(absl::StrCat(input.name, "[", absl::StrJoin(sizes, ", "), "]"));
  }
  return absl::StrJoin(inputs, ", ");
}

}  // namespace stagewright
