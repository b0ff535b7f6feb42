#include "planner_service/evaluator/bounds/edge_bytes.h"

#include "common/cost/value_bytes.h"

namespace stagewright {

double BytesRead(const MessageTypes& types, NodeId from, NodeId to) {
  const Graph& graph = types.graph();
  const Node& node = graph.node(from);
  if (node.cost) {
    return static_cast<double>(ProfiledEdgeBytes(graph, from, to)) /
           static_cast<double>(node.cost->samples);
  }
  double bytes = 0;
  for (ValueRef value : graph.Values(to)) {
    if (value.node == from && graph.meta(value).IsBatched())
      bytes += static_cast<double>(ValueBytesPerSample(types, value, 1));
  }
  return bytes;
}

double GradientBytesRead(const MessageTypes& types, NodeId from, NodeId to) {
  const Graph& graph = types.graph();
  if (graph.node(from).cost) return BytesRead(types, from, to);
  double bytes = 0;
  for (ValueRef value : graph.Values(to)) {
    const TensorMeta& meta = graph.meta(value);
    if (value.node == from && meta.IsBatched() && IsFloating(meta.dtype))
      bytes += static_cast<double>(ValueBytesPerSample(types, value, 1));
  }
  return bytes;
}

bool GradientReturns(const Graph& graph, NodeId from, NodeId to) {
  if (!graph.needs_backward(from) || !graph.needs_backward(to)) return false;
  if (graph.node(from).cost) return true;
  for (ValueRef value : graph.Values(to)) {
    if (value.node == from && IsFloating(graph.meta(value).dtype)) return true;
  }
  return false;
}

}  // namespace stagewright
