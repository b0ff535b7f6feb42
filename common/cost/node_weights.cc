#include "common/cost/node_weights.h"

namespace stagewright {

std::vector<double> NodeWeights(const Graph& graph, const CostModel& costs, const DeviceKind& kind,
                                int64_t samples) {
  std::vector<double> weights;
  weights.reserve(graph.size());
  for (int32_t v = 0; v < graph.size(); ++v) {
    const OperatorTime time = costs.Time(NodeId(v), kind, samples);
    weights.push_back(static_cast<double>(time.forward + time.backward));
  }
  return weights;
}

}  // namespace stagewright
