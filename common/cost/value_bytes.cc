#include "common/cost/value_bytes.h"

namespace stagewright {
namespace {

Bytes CeilDivide(Bytes total, int64_t parts) { return (total + Bytes(parts - 1)) / parts; }

}  // namespace

Bytes ValueBytesPerSample(const MessageTypes& types, ValueRef value, int64_t samples) {
  const Node& node = types.graph().node(value.node);
  if (node.cost.has_value()) return CeilDivide(node.cost->activation_bytes, node.cost->samples);
  if (types.graph().meta(value).IsBatched()) return types.SizeBytes(value, 1);
  return CeilDivide(types.SizeBytes(value, samples), samples);
}

Bytes ProfiledEdgeBytes(const Graph& graph, NodeId from, NodeId to) {
  const ProfiledCost& cost = *graph.node(from).cost;
  if (cost.edge_bytes.empty()) return cost.activation_bytes;
  for (const NeighborBytes& edge : cost.edge_bytes) {
    if (edge.node == to) return edge.bytes;
  }
  return 0;
}

}  // namespace stagewright
