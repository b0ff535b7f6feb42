#include "common/cost/node_weights.h"

#include <numeric>

namespace stagewright {

std::vector<double> NodeWeights(const Graph& graph, const CostModel& costs, const DeviceKind& kind,
                                int64_t samples) {
  std::vector<double> weights;
  weights.reserve(graph.size());
  for (int32_t v = 0; v < graph.size(); ++v) {
    const OperatorTime time = costs.Time(NodeId(v), kind, samples);
    weights.push_back(static_cast<double>(time.forward) + static_cast<double>(time.backward));
  }
  return weights;
}

double TotalTime(const Graph& graph, const CostModel& costs, const DeviceKind& kind,
                 int64_t samples) {
  const std::vector<double> weights = NodeWeights(graph, costs, kind, samples);
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

}  // namespace stagewright
