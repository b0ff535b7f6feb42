#include "common/graph/graph.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/graph/check_graph.h"

namespace stagewright {
namespace {

template <typename T>
void AddOnce(std::vector<T>& items, const T& item) {
  if (std::find(items.begin(), items.end(), item) == items.end()) items.push_back(item);
}

absl::Status DescribeCycle(const GraphData& data, const std::vector<Dag::Edge>& edges) {
  std::vector<std::string> names;
  for (int32_t v : Dag::FindCycle(static_cast<int32_t>(data.nodes.size()), edges)) {
    names.push_back(data.nodes[v].name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("nodes: cycle through ", absl::StrJoin(names, " -> ")));
}

}  // namespace

absl::StatusOr<Graph> Graph::Create(GraphData data) {
  RETURN_IF_ERROR(CheckGraphData(data));
  Graph graph;
  const size_t n = data.nodes.size();
  graph.values_.resize(n);
  graph.node_parameters_.resize(n);
  graph.node_inputs_.resize(n);
  graph.node_totals_.resize(n);
  std::vector<Dag::Edge> edges;
  bool any_profiled = false;
  for (size_t i = 0; i < n; ++i) {
    ForEachLeaf(data.nodes[i], [&](const Argument& leaf) {
      if (const auto* value = std::get_if<ValueRef>(&leaf.value)) AddOnce(graph.values_[i], *value);
      if (const auto* parameter = std::get_if<ParameterId>(&leaf.value))
        AddOnce(graph.node_parameters_[i], *parameter);
      if (const auto* input = std::get_if<InputId>(&leaf.value))
        AddOnce(graph.node_inputs_[i], *input);
      if (const auto* total = std::get_if<TotalId>(&leaf.value))
        AddOnce(graph.node_totals_[i], *total);
    });
    for (const ValueRef& value : graph.values_[i])
      edges.emplace_back(value.node.value(), static_cast<int32_t>(i));
    for (NodeId before : data.nodes[i].after)
      edges.emplace_back(before.value(), static_cast<int32_t>(i));
    any_profiled = any_profiled || data.nodes[i].cost.has_value();
  }
  auto dag = Dag::Create(static_cast<int32_t>(n), edges);
  if (!dag.ok()) return DescribeCycle(data, edges);
  graph.dag_ = *std::move(dag);
  RETURN_IF_ERROR(CheckCostEdges(data, graph.dag_));
  graph.executable_ = !any_profiled && data.loss.has_value();

  graph.data_ = std::move(data);
  graph.FindStates();
  graph.FindBackward();
  return graph;
}

void Graph::FindStates() {
  is_state_.assign(data_.parameters.size(), false);
  for (const StateUpdate& update : data_.state_updates) is_state_[update.parameter.index()] = true;
  for (const Node& node : data_.nodes) {
    if (!node.batch_dependent || node.target.find("batch_norm") == std::string::npos) continue;
    for (const size_t statistic : {3, 4}) {  // Running mean and variance, in every overload.
      if (statistic >= node.args.size()) break;
      const auto* id = std::get_if<ParameterId>(&node.args[statistic].value);
      if (id != nullptr) is_state_[id->index()] = true;
    }
  }
}

void Graph::FindBackward() {
  const std::vector<int32_t>& order = dag_.order();
  needs_backward_.assign(size(), false);
  for (int32_t v : order) {
    const auto& parameters = node_parameters_[v];
    const auto before = dag_.Predecessors(v);
    const auto& outputs = data_.nodes[v].outputs;
    const bool floating = std::any_of(outputs.begin(), outputs.end(), [](const TensorMeta& meta) {
      return IsFloating(meta.dtype);
    });
    needs_backward_[v] =
        data_.nodes[v].cost.has_value() ||
        (floating &&
         (std::any_of(parameters.begin(), parameters.end(),
                      [&](ParameterId p) { return data_.parameters[p.index()].trainable; }) ||
          std::any_of(before.begin(), before.end(),
                      [&](int32_t u) { return needs_backward_[u]; })));
  }
  if (!data_.loss.has_value()) return;
  std::vector<bool> reaches_loss(size(), false);
  reaches_loss[data_.loss->node.index()] = true;
  for (auto v = order.rbegin(); v != order.rend(); ++v) {
    for (int32_t w : dag_.Successors(*v)) {
      if (reaches_loss[w]) reaches_loss[*v] = true;
    }
    if (!reaches_loss[*v] && !data_.nodes[*v].cost.has_value()) needs_backward_[*v] = false;
  }
}

}  // namespace stagewright
