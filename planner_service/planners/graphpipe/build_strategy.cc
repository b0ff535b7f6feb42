#include "planner_service/planners/graphpipe/build_strategy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

std::vector<NodeId> NodesOf(const StageOracle& oracle, const StageChoice& choice,
                            const std::vector<int32_t>& rank) {
  std::vector<NodeId> nodes;
  for (int32_t p = choice.begin; p < choice.end; ++p) {
    const std::vector<NodeId>& own = oracle.problem().operators->op(oracle.order()[p]).nodes;
    nodes.insert(nodes.end(), own.begin(), own.end());
  }
  std::sort(nodes.begin(), nodes.end(),
            [&](NodeId a, NodeId b) { return rank[a.index()] < rank[b.index()]; });
  return nodes;
}

}  // namespace

Strategy BuildStrategy(const StageOracle& oracle, const Partition& partition, const Layout& layout,
                       StrategyKind kind) {
  const Problem& problem = oracle.problem();
  const Graph& graph = *problem.graph;
  std::vector<int32_t> rank(graph.size());
  const std::vector<int32_t>& order = graph.dag().order();
  for (size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<int32_t>(i);

  Strategy strategy;
  strategy.kind = kind;
  strategy.mini_batch = problem.mini_batch;
  for (size_t s = 0; s < partition.stages.size(); ++s) {
    const StageChoice& choice = partition.stages[s];
    Stage stage;
    stage.nodes = NodesOf(oracle, choice, rank);
    stage.replicated = ReplicatedInto(graph, *problem.operators, stage.nodes);
    stage.micro_batch = choice.config.micro_batch;
    stage.devices = layout.devices[s];
    stage.schedule = {layout.in_flight[s], choice.config.k};
    stage.recompute = choice.recompute;
    strategy.stages.push_back(std::move(stage));
  }
  for (const Layout::Edge& edge : layout.edges) {
    strategy.edges.push_back({StageId(edge.from), StageId(edge.to)});
  }
  return strategy;
}

std::string ToString(const Partition& partition) {
  std::string text;
  for (const StageChoice& choice : partition.stages) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "[", choice.begin, ",", choice.end, ")x",
                    choice.replicas, choice.recompute ? "r" : "", " b", choice.config.micro_batch,
                    " k", choice.config.k, " i", choice.in_flight);
  }
  return text;
}

}  // namespace stagewright
