#include "common/strategy/strategy.h"

#include <algorithm>

namespace stagewright {
SampleRange ReplicaShare(SampleRange micro_batch, int32_t replica, int32_t replicas) {
  const int64_t least = micro_batch.size() / replicas;
  const int64_t larger = micro_batch.size() % replicas;
  const int64_t begin = micro_batch.begin + replica * least + std::min<int64_t>(replica, larger);
  return {begin, begin + least + (replica < larger ? 1 : 0)};
}

bool SharesWithin(const SampleBounds& bounds, int64_t micro_batch, int64_t replicas) {
  return micro_batch / replicas >= bounds.least &&
         (micro_batch + replicas - 1) / replicas <= bounds.most;
}

bool HasBackward(const Graph& graph, const Stage& stage) {
  return std::any_of(stage.nodes.begin(), stage.nodes.end(),
                     [&](NodeId node) { return graph.needs_backward(node); });
}

std::vector<StageId> StageOwners(const Graph& graph, const std::vector<Stage>& stages) {
  std::vector<StageId> owners(graph.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    for (NodeId node : stages[s].nodes) owners[node.index()] = StageId(static_cast<int64_t>(s));
  }
  return owners;
}

absl::StatusOr<Dag> StageGraph(const Strategy& strategy) {
  std::vector<Dag::Edge> edges;
  for (const StageEdge& edge : strategy.edges)
    edges.emplace_back(edge.from.value(), edge.to.value());
  auto dag = Dag::Create(static_cast<int32_t>(strategy.stages.size()), std::move(edges));
  if (!dag.ok()) return Annotate(dag.status(), "stage graph");
  return dag;
}

std::vector<StageEdge> DataEdges(const Graph& graph, const std::vector<Stage>& stages) {
  const std::vector<StageId> owners = StageOwners(graph, stages);
  std::vector<StageEdge> edges;
  for (size_t v = 0; v < owners.size(); ++v) {
    if (!owners[v].valid()) continue;
    for (int32_t before : graph.dag().Predecessors(static_cast<int32_t>(v))) {
      if (owners[before].valid() && owners[before] != owners[v])
        edges.push_back({owners[before], owners[v]});
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

std::vector<ValueRef> EdgeValues(const Graph& graph, const Strategy& strategy, StageEdge edge) {
  std::vector<bool> produced(graph.size(), false);
  for (NodeId node : strategy.stages[edge.from.index()].nodes) produced[node.index()] = true;
  std::vector<ValueRef> values;
  for (NodeId node : strategy.stages[edge.to.index()].nodes) {
    ForEachRead(graph, node, [&](ValueRef value) {
      if (produced[value.node.index()]) values.push_back(value);
    });
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace stagewright
