#include "planner_service/evaluator/bounds/least_costs.h"

#include <algorithm>
#include <limits>
#include <set>

#include "common/cost/update.h"
#include "planner_service/evaluator/bounds/ways.h"

namespace stagewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Bytes kNoLimit = std::numeric_limits<Bytes>::max();

// S: the numbers of samples that one action can have, ascending.
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

std::vector<DeviceId> AllDevices(const Cluster& cluster) {
  std::vector<DeviceId> devices;
  for (int32_t d = 0; d < cluster.size(); ++d) devices.emplace_back(d);
  return devices;
}

// Leaves the lower convex hull: what minimises a weighted sum of both for some weights >= 0.
void KeepHull(std::vector<ShareCost>& shares) {
  const auto before = [](const ShareCost& a, const ShareCost& b) {
    return a.passes != b.passes ? a.passes < b.passes : a.per_sample < b.per_sample;
  };
  // More samples mostly take longer, so that there is nothing to sort.
  if (!std::is_sorted(shares.begin(), shares.end(), before))
    std::sort(shares.begin(), shares.end(), before);
  std::vector<ShareCost> hull;
  for (const ShareCost& next : shares) {
    if (!hull.empty() && next.per_sample >= hull.back().per_sample) continue;
    while (hull.size() > 1) {
      const ShareCost& a = hull[hull.size() - 2];
      const ShareCost& b = hull.back();
      // Below or on the line from a to next.
      if ((b.per_sample - a.per_sample) * (next.passes - a.passes) <
          (next.per_sample - a.per_sample) * (b.passes - a.passes)) {
        break;
      }
      hull.pop_back();
    }
    hull.push_back(next);
  }
  shares = std::move(hull);
}

class Costing {
 public:
  Costing(const BoundProblem& problem, const CostModel& costs)
      : problem_(problem),
        costs_(costs),
        sizes_(ShareSizes(problem.mini_batch, problem.cluster.size())),
        memory_(problem.devices.size()) {
    for (const Device& device : problem.cluster.devices())
      memory_[device.kind] = std::max(memory_[device.kind], device.memory);
  }

  NodeCost Of(NodeId node) const {
    NodeCost least;
    least.forward = least.input = least.weight = least.update = kInfinity;
    least.bytes = BytesOf(node);
    for (size_t k = 0; k < memory_.size(); ++k) {
      // If the largest share fits, smaller ones do, or may be taken to.
      const bool all_fit = Fits(node, least.bytes, sizes_.back(), memory_[k]);
      AddKind(node, k, all_fit ? kNoLimit : memory_[k], least);
    }
    if (least.forward < kInfinity) return least;
    // It fits nowhere: there is no strategy, and every bound holds.
    least.per_sample.clear();
    least.to_predecessors.clear();
    least.shares.clear();
    for (size_t k = 0; k < memory_.size(); ++k) AddKind(node, k, kNoLimit, least);
    return least;
  }

 private:
  HeldBytes BytesOf(NodeId node) const {
    const Graph& graph = problem_.graph;
    HeldBytes bytes;
    if (const auto& cost = graph.node(node).cost)
      bytes = LeastBytesHeld(*cost, problem_.optimizer, problem_.sharding);
    for (ParameterId id : graph.Parameters(node))
      bytes += LeastBytesHeld(graph.parameter(id), problem_.optimizer, problem_.sharding);
    if (!graph.needs_backward(node)) bytes.trained = bytes.gradients = 0;
    return bytes;
  }

  bool Fits(NodeId node, const HeldBytes& bytes, int64_t samples, Bytes memory) const {
    return bytes.resident + costs_.SavedBytes(node, samples) <= memory;
  }

  void AddKind(NodeId node, size_t k, Bytes memory, NodeCost& least) const {
    const DeviceKind& kind = problem_.cluster.kinds()[k];
    const bool has_backward = problem_.graph.needs_backward(node);
    double per_sample = kInfinity;
    double to_predecessors = kInfinity;
    std::vector<ShareCost> shares;
    shares.reserve(sizes_.size());
    for (int64_t samples : sizes_) {
      if (problem_.devices[k] == 0) break;
      if (memory != kNoLimit && !Fits(node, least.bytes, samples, memory)) continue;
      const OperatorTime time = costs_.Time(node, kind, samples);
      const auto forward = static_cast<double>(time.forward);
      const auto backward = has_backward ? static_cast<double>(time.backward) : 0.0;
      // A backward pass whose halves are not known is not split.
      const bool halves = time.backward_input + time.backward_weight == time.backward;
      const double input =
          halves && has_backward ? static_cast<double>(time.backward_input) : backward;
      least.forward = std::min(least.forward, forward);
      least.input = std::min(least.input, input);
      least.weight = std::min(least.weight, backward - input);
      least.update = std::min(least.update, LeastOptimizerStepTime(kind, least.bytes.trained));
      const auto n = static_cast<double>(samples);
      per_sample = std::min(per_sample, (forward + backward) / n);
      to_predecessors = std::min(to_predecessors, (forward + input) / n);
      shares.push_back({forward + input, (forward + backward) / n});
    }
    KeepHull(shares);
    least.per_sample.push_back(per_sample);
    least.to_predecessors.push_back(to_predecessors);
    least.shares.push_back(std::move(shares));
  }

  const BoundProblem& problem_;
  const CostModel& costs_;
  const std::vector<int64_t> sizes_;
  std::vector<Bytes> memory_;  // By kind: the largest.
};

}  // namespace

BoundProblem MakeBoundProblem(const Graph& graph, const OperatorGraph& operators,
                              const Cluster& cluster, const CostModel& costs, int64_t mini_batch,
                              Optimizer optimizer, OptimizerSharding sharding) {
  BoundProblem problem{graph,      operators, cluster,  MessageTypes(graph, costs.precision()),
                       mini_batch, optimizer, sharding, {},
                       {},         {},        {},       {}};
  problem.fastest = FastestOf(cluster, AllDevices(cluster));
  problem.devices.resize(cluster.kinds().size());
  for (const Device& device : cluster.devices()) ++problem.devices[device.kind];
  problem.costs.resize(graph.size());
  const Costing costing(problem, costs);
  for (int32_t v = 0; v < graph.size(); ++v) {
    if (problem.owned(v)) problem.costs[v] = costing.Of(NodeId(v));
  }
  MeasureWays(problem);
  return problem;
}

std::vector<HeldBytes> FirstUses(const BoundProblem& problem) {
  const Graph& graph = problem.graph;
  std::vector<HeldBytes> first(graph.size());
  std::vector<bool> seen(graph.parameters().size());
  for (int32_t v = 0; v < graph.size(); ++v) {
    const NodeId node(v);
    if (!problem.owned(v) || !graph.needs_backward(node)) continue;
    if (const auto& cost = graph.node(node).cost)
      first[v] += LeastBytesHeld(*cost, problem.optimizer, problem.sharding);
    for (ParameterId id : graph.Parameters(node)) {
      const Parameter& parameter = graph.parameter(id);
      if (parameter.trainable && !seen[id.index()])
        first[v] += LeastBytesHeld(parameter, problem.optimizer, problem.sharding);
      seen[id.index()] = true;
    }
  }
  return first;
}

}  // namespace stagewright
