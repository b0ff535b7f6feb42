#include "common/graph/coarsening/set_aside.h"

#include <algorithm>
#include <cstdint>

#include "common/graph/aten.h"

namespace stagewright {
namespace {

// Loss, prediction or new state.
bool IsResult(const Graph& graph, int32_t v) {
  const auto updates = graph.state_updates();
  return (graph.loss() && graph.loss()->node == NodeId(v)) ||
         (graph.prediction() && graph.prediction()->node == NodeId(v)) ||
         std::any_of(updates.begin(), updates.end(),
                     [&](const StateUpdate& update) { return update.value.node == NodeId(v); });
}

bool ReadsState(const Graph& graph, NodeId id) {
  return std::any_of(graph.Parameters(id).begin(), graph.Parameters(id).end(),
                     [&](ParameterId p) { return graph.is_state(p); });
}

}  // namespace

std::vector<bool> SetAside(const Graph& graph, const std::vector<double>& weight, double light) {
  std::vector<bool> aside(graph.size(), false);
  std::vector<bool> constant(graph.size(), false);
  bool any_left = false;
  for (int32_t v : graph.dag().order()) {
    const NodeId id(v);
    const Node& node = graph.node(id);
    const auto before = graph.dag().Predecessors(v);
    const bool free_of_training =
        !node.cost && !node.batch_dependent && !IsResult(graph, v) && !graph.needs_backward(id) &&
        !ReadsState(graph, id) && graph.Totals(id).empty() &&
        std::none_of(graph.Parameters(id).begin(), graph.Parameters(id).end(),
                     [&](ParameterId p) { return graph.parameter(p).trainable; });
    constant[v] = free_of_training && graph.Inputs(id).empty() &&
                  std::all_of(before.begin(), before.end(), [&](int32_t u) { return constant[u]; });
    const AtenKind kind = KindOfTarget(node.target);
    const bool cheap = kind == AtenKind::kView || (weight[v] <= light && !IsMatmulLike(kind));
    aside[v] = constant[v] ||
               (free_of_training && graph.Parameters(id).empty() && cheap &&
                std::all_of(before.begin(), before.end(), [&](int32_t u) { return aside[u]; }));
    any_left = any_left || !aside[v];
  }
  if (!any_left) aside.assign(graph.size(), false);
  return aside;
}

std::vector<NodeId> MayBeSetAside(const Graph& graph) {
  const std::vector<bool> aside = SetAside(graph, std::vector<double>(graph.size(), 0), 0);
  std::vector<NodeId> nodes;
  for (int32_t v : graph.dag().order()) {
    if (aside[v]) nodes.emplace_back(v);
  }
  return nodes;
}

std::vector<NodeId> SharedInto(const Graph& graph, const std::vector<NodeId>& shared,
                               const std::vector<NodeId>& nodes) {
  if (shared.empty()) return {};
  enum : uint8_t { kOwned, kShared, kWanted };
  std::vector<uint8_t> is(graph.size(), kOwned);
  for (NodeId id : shared) is[id.index()] = kShared;
  std::vector<NodeId> open = nodes;
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    for (int32_t u : graph.dag().Predecessors(id.value())) {
      if (is[u] != kShared) continue;
      is[u] = kWanted;
      open.emplace_back(u);
    }
  }
  std::vector<NodeId> result;
  for (NodeId id : shared) {
    if (is[id.index()] == kWanted) result.push_back(id);
  }
  return result;
}

}  // namespace stagewright
