#include "common/cost/value_bytes.h"

namespace stagewright {
namespace {

Bytes CeilDivide(Bytes total, int64_t parts) { return (total + Bytes(parts - 1)) / parts; }

}  // namespace

Bytes ValueBytesPerSample(const Graph& graph, ValueRef value, int64_t samples) {
  const Node& node = graph.node(value.node);
  if (node.cost.has_value()) return CeilDivide(node.cost->activation_bytes, node.cost->samples);
  const TensorMeta& meta = graph.meta(value);
  if (meta.IsBatched()) return meta.SizeBytes(1);
  return CeilDivide(meta.SizeBytes(samples), samples);
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
