#include "planner_service/front_door/few_operators.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace stagewright {
namespace {

// A node with more of the work leaves a pipeline little to gain.
constexpr double kMostOfTheWork = 0.5;

std::string Named(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  return absl::StrCat("node \"", node.name, "\" (", node.target, ")",
                      node.module.empty() ? "" : absl::StrCat(" of module \"", node.module, "\""));
}

const Operator& Heaviest(const OperatorGraph& operators, const std::vector<double>& weights) {
  const auto weight = [&](const Operator& op) {
    double sum = 0;
    for (NodeId node : op.nodes) sum += weights[node.index()];
    return sum;
  };
  const auto all = std::span(operators.operators());
  return *std::max_element(all.begin(), all.end(), [&](const Operator& a, const Operator& b) {
    return weight(a) < weight(b);
  });
}

// The value that holds most nodes together: made first and read last.
struct Uncut {
  ValueRef value;
  int32_t span = -1;
  int32_t count = 0;
};

Uncut LongestUncut(const Graph& graph, const OperatorGraph& operators, const Operator& op) {
  std::vector<int32_t> rank(graph.size());
  const std::vector<int32_t>& order = graph.dag().order();
  for (size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<int32_t>(i);
  std::vector<ValueRef> seen;
  Uncut found;
  for (NodeId reader : op.nodes) {
    for (const ValueRef& value : graph.Values(reader)) {
      if (!operators.owner(value.node).valid() || graph.meta(value).IsBatched()) continue;
      seen.push_back(value);
      const int32_t span = rank[reader.index()] - rank[value.node.index()];
      if (span > found.span) found = {value, span, 0};
    }
  }
  std::sort(seen.begin(), seen.end());
  found.count = static_cast<int32_t>(std::unique(seen.begin(), seen.end()) - seen.begin());
  return found;
}

std::optional<ParameterId> SharedState(const Graph& graph, const Operator& op) {
  for (NodeId node : op.nodes) {
    for (ParameterId id : graph.Parameters(node)) {
      if (graph.is_state(id)) return id;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string WhyFewOperators(const Graph& graph, const OperatorGraph& operators,
                            const std::vector<double>& weights) {
  const Operator& op = Heaviest(operators, weights);
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  const NodeId heaviest = *std::max_element(
      op.nodes.begin(), op.nodes.end(),
      [&](NodeId a, NodeId b) { return weights[a.index()] < weights[b.index()]; });
  if (weights[heaviest.index()] > kMostOfTheWork * all) {
    return absl::StrFormat("%s is %.0f %% of the work, and a node is never cut",
                           Named(graph, heaviest), 100 * weights[heaviest.index()] / all);
  }
  const Uncut uncut = LongestUncut(graph, operators, op);
  if (uncut.count > 0) {
    const std::string others =
        uncut.count > 1 ? absl::StrCat(" (and ", uncut.count - 1, " more)") : "";
    return absl::StrCat("the value of ", Named(graph, uncut.value.node), others,
                        " cannot be cut between samples, because ",
                        graph.meta(uncut.value).mixed ? "its entries belong to no sample alone"
                                                      : "its samples do not lie side by side",
                        ", so that what makes it and what reads it share a stage");
  }
  if (const auto state = SharedState(graph, op)) {
    return absl::StrCat("what reads the state \"", graph.parameter(*state).name,
                        "\" and what changes it share a stage");
  }
  return absl::StrCat("its ", op.nodes.size(), " nodes are too light to be worth cutting");
}

}  // namespace stagewright
