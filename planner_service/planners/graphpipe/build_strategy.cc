#include "planner_service/planners/graphpipe/build_strategy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "planner_service/search/placement.h"

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

void AddChain(Strategy& strategy) {
  for (size_t s = 1; s < strategy.stages.size(); ++s) {
    strategy.edges.push_back(
        {StageId(static_cast<int64_t>(s) - 1), StageId(static_cast<int64_t>(s))});
  }
  std::sort(strategy.edges.begin(), strategy.edges.end());
  strategy.edges.erase(std::unique(strategy.edges.begin(), strategy.edges.end()),
                       strategy.edges.end());
}

}  // namespace

Strategy BuildStrategy(const StageOracle& oracle, const Partition& partition, StrategyKind kind) {
  const Problem& problem = oracle.problem();
  const Graph& graph = *problem.graph;
  std::vector<int32_t> rank(graph.size());
  const std::vector<int32_t>& order = graph.dag().order();
  for (size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<int32_t>(i);

  std::vector<int32_t> replicas;
  for (const StageChoice& choice : partition.stages) replicas.push_back(choice.replicas);
  const auto devices = PlaceStages(*problem.cluster, replicas);

  Strategy strategy;
  strategy.kind = kind;
  strategy.mini_batch = problem.mini_batch;
  for (size_t s = 0; s < partition.stages.size(); ++s) {
    const StageChoice& choice = partition.stages[s];
    Stage stage;
    stage.nodes = NodesOf(oracle, choice, rank);
    stage.replicated = ReplicatedInto(graph, *problem.operators, stage.nodes);
    stage.micro_batch = choice.config.micro_batch;
    stage.devices = devices[s];
    stage.schedule.k = choice.config.k;
    strategy.stages.push_back(std::move(stage));
  }
  strategy.edges = DataEdges(graph, strategy.stages);
  if (kind == StrategyKind::kSequential) AddChain(strategy);
  AssignInFlight(strategy);
  return strategy;
}

std::string ToString(const Partition& partition) {
  std::string text;
  for (const StageChoice& choice : partition.stages) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", "[", choice.begin, ",", choice.end, ")x",
                    choice.replicas, " b", choice.config.micro_batch, " k", choice.config.k, " i",
                    choice.in_flight);
  }
  return text;
}

}  // namespace stagewright
