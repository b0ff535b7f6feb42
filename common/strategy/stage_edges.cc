#include "common/strategy/stage_edges.h"

#include <algorithm>

namespace stagewright {

std::vector<StageEdge> StageEdges(const Graph& graph, StrategyKind kind,
                                  const std::vector<Stage>& stages) {
  std::vector<StageEdge> edges = DataEdges(graph, stages);
  if (kind != StrategyKind::kSequential) return edges;
  for (size_t s = 1; s < stages.size(); ++s) {
    const auto to = static_cast<int64_t>(s);
    edges.push_back({StageId(to - 1), StageId(to)});
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

}  // namespace stagewright
