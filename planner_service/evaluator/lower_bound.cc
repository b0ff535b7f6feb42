#include "planner_service/evaluator/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace stagewright {
namespace {

// The least a node can cost, each over all possible shares and kinds; ns.
struct LeastCost {
  double forward = 0;     // Of one action.
  double backward = 0;    // Of one action.
  double per_sample = 0;  // Forward + backward, per sample.
};

// S: the numbers of samples that one action can have.
std::vector<int64_t> ShareSizes(int64_t mini_batch, int32_t devices) {
  std::set<int64_t> sizes;
  for (int64_t low = 1; low <= mini_batch / low; ++low) {
    if (mini_batch % low != 0) continue;
    for (int64_t divisor : {low, mini_batch / low}) {
      for (int64_t r = 1; r <= std::min<int64_t>(devices, divisor); ++r) {
        sizes.insert(divisor / r);
        sizes.insert((divisor + r - 1) / r);
      }
    }
  }
  return {sizes.begin(), sizes.end()};
}

LeastCost LeastOf(NodeId node, bool has_backward, const Cluster& cluster, const CostModel& costs,
                  const std::vector<int64_t>& sizes) {
  const double infinity = std::numeric_limits<double>::infinity();
  LeastCost least{infinity, infinity, infinity};
  for (const DeviceKind& kind : cluster.kinds()) {
    for (int64_t samples : sizes) {
      const OperatorTime time = costs.Time(node, kind, samples);
      const double forward = static_cast<double>(time.forward);
      const double backward = has_backward ? static_cast<double>(time.backward) : 0.0;
      least.forward = std::min(least.forward, forward);
      least.backward = std::min(least.backward, backward);
      least.per_sample =
          std::min(least.per_sample, (forward + backward) / static_cast<double>(samples));
    }
  }
  return least;
}

// Whether a tensor with a gradient flows from a node to its reader, both with a backward pass: then
// the backward pass of `node` waits for that of `next`, as in common/schedule/channels.cc.
bool GradientReturns(const Graph& graph, NodeId node, NodeId next) {
  if (graph.node(node).cost) return true;
  for (ValueRef value : graph.Values(next)) {
    if (value.node == node && IsFloating(graph.meta(value).dtype)) return true;
  }
  return false;
}

double PathBound(const Graph& graph, const std::vector<LeastCost>& least) {
  std::vector<double> forward(graph.size());     // Longest path that ends at a node, forward only;
  std::vector<double> round_trip(graph.size());  // and with the way back from it.
  double bound = 0;
  for (int32_t v : graph.dag().order()) {
    double to_here = 0;
    double and_back = 0;
    for (int32_t u : graph.dag().Predecessors(v)) {
      to_here = std::max(to_here, forward[u]);
      if (graph.needs_backward(NodeId(u)) && graph.needs_backward(NodeId(v)) &&
          GradientReturns(graph, NodeId(u), NodeId(v))) {
        and_back = std::max(and_back, round_trip[u]);
      }
    }
    forward[v] = to_here + least[v].forward;
    round_trip[v] = std::max(to_here, and_back) + least[v].forward + least[v].backward;
    bound = std::max(bound, round_trip[v]);
  }
  return bound;
}

// The fastest that any two devices can exchange.
struct BestRoute {
  double latency = std::numeric_limits<double>::infinity();
  double bytes_per_nano = 0;
};

BestRoute FastestRoute(const Cluster& cluster) {
  BestRoute best;
  for (int32_t a = 0; a < cluster.size(); ++a) {
    for (int32_t b = 0; b < cluster.size(); ++b) {
      if (a == b) continue;
      const Route& route = cluster.route(DeviceId(a), DeviceId(b));
      best.latency = std::min(best.latency, static_cast<double>(route.latency));
      best.bytes_per_nano = std::max(best.bytes_per_nano, route.bytes_per_second * 1e-9);
    }
  }
  return best;
}

// Bytes that replicas of the node's stage sum after their last backward pass.
Bytes GradientBytes(const Graph& graph, NodeId node) {
  const auto& cost = graph.node(node).cost;
  Bytes bytes = cost ? cost->parameter_bytes : 0;
  for (ParameterId id : graph.Parameters(node)) {
    if (graph.parameter(id).trainable) bytes += graph.parameter(id).SizeBytes();
  }
  return bytes;
}

double NodeBound(double work, Bytes gradients, int32_t devices, const BestRoute& route) {
  double bound = work;
  for (int32_t r = 2; r <= devices; ++r) {
    const double hops = 2.0 * (r - 1);
    // An all-reduce's time is rounded to whole nanoseconds: at most one less.
    const double sum = gradients == 0
                           ? 0.0
                           : hops * route.latency - 1 +
                                 hops / r * static_cast<double>(gradients) / route.bytes_per_nano;
    bound = std::min(bound, work / r + std::max(0.0, sum));
  }
  return bound;
}

}  // namespace

Nanos LowerBound(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
                 const CostModel& costs, int64_t mini_batch) {
  const std::vector<int64_t> sizes = ShareSizes(mini_batch, cluster.size());
  const BestRoute route = FastestRoute(cluster);
  std::vector<LeastCost> least(graph.size());
  double total = 0;
  double bound = 0;
  for (int32_t v = 0; v < graph.size(); ++v) {
    if (!operators.owner(NodeId(v)).valid()) continue;  // Replicated: free.
    least[v] = LeastOf(NodeId(v), graph.needs_backward(NodeId(v)), cluster, costs, sizes);
    const double work = least[v].per_sample * static_cast<double>(mini_batch);
    total += work;
    const Bytes gradients = graph.needs_backward(NodeId(v)) ? GradientBytes(graph, NodeId(v)) : 0;
    bound = std::max(bound, NodeBound(work, gradients, cluster.size(), route));
  }
  bound = std::max({bound, total / cluster.size(), PathBound(graph, least)});
  // One part in 10^12 for the rounding of floating-point sums.
  return static_cast<Nanos>(std::floor(bound * (1 - 1e-12)));
}

}  // namespace stagewright
