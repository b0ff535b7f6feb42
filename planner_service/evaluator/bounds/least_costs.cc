#include "planner_service/evaluator/bounds/least_costs.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "common/cost/update.h"
#include "planner_service/evaluator/bounds/ways.h"

namespace stagewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr ShareCost kImpossible = {kInfinity, kInfinity, kInfinity, kInfinity};
constexpr Bytes kNoLimit = std::numeric_limits<Bytes>::max();

// A number of samples that one action can have.
struct Share {
  int64_t samples = 1;
  // The same stage may have actions of a sample less, or one more.
  bool less = false;
  bool more = false;
};

// S, ascending.
std::vector<Share> Shares(int64_t mini_batch, int32_t devices) {
  std::map<int64_t, Share> shares;
  const auto add = [&](int64_t divisor, int64_t replicas) {
    const int64_t least = divisor / replicas;
    const int64_t most = (divisor + replicas - 1) / replicas;
    shares[least].more |= least != most;
    shares[most].less |= least != most;
  };
  for (int64_t low = 1; low <= mini_batch / low; ++low) {
    if (mini_batch % low != 0) continue;
    for (int64_t divisor : {low, mini_batch / low}) {
      for (int64_t r = 1; r <= std::min<int64_t>(devices, divisor); ++r) add(divisor, r);
    }
  }
  std::vector<Share> all;
  for (auto& [samples, share] : shares) {
    share.samples = samples;
    all.push_back(share);
  }
  return all;
}

std::vector<DeviceId> AllDevices(const Cluster& cluster) {
  std::vector<DeviceId> devices;
  for (int32_t d = 0; d < cluster.size(); ++d) devices.emplace_back(d);
  return devices;
}

constexpr std::array kCostsOfShare = {&ShareCost::passes, &ShareCost::per_sample,
                                      &ShareCost::backward, &ShareCost::forward};

// Whether some mixture of two has none of the costs of `share` larger.
bool Covered(const ShareCost& share, const ShareCost& a, const ShareCost& b) {
  double least = 0;  // The part of `b` in it.
  double most = 1;
  for (const auto cost : kCostsOfShare) {
    const double step = b.*cost - a.*cost;
    const double room = share.*cost - a.*cost;
    if (step > 0) {
      most = std::min(most, room / step);
    } else if (step < 0) {
      least = std::max(least, room / step);
    } else if (room < 0) {
      return false;
    }
  }
  return least <= most;
}

// Leaves those of which some weighted sum of costs, weights >= 0, may be the least.
void Thin(std::vector<ShareCost>& shares) {
  const auto before = [](const ShareCost& a, const ShareCost& b) { return a.passes < b.passes; };
  // More samples mostly take longer, so that there is nothing to sort.
  if (!std::is_sorted(shares.begin(), shares.end(), before))
    std::stable_sort(shares.begin(), shares.end(), before);
  std::vector<ShareCost> thin;
  for (const ShareCost& next : shares) {
    if (!thin.empty() && Covered(next, thin.back(), thin.back())) continue;
    while (!thin.empty() &&
           Covered(thin.back(), thin.size() > 1 ? thin[thin.size() - 2] : next, next)) {
      thin.pop_back();
    }
    thin.push_back(next);
  }
  shares = std::move(thin);
}

class Costing {
 public:
  Costing(const BoundProblem& problem, const CostModel& costs)
      : problem_(problem),
        costs_(costs),
        shares_(Shares(problem.mini_batch, problem.cluster.size())),
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
      const bool all_fit = Fits(node, least.bytes, shares_.back().samples, memory_[k]);
      AddKind(node, k, all_fit ? kNoLimit : memory_[k], least);
    }
    if (least.forward < kInfinity) {
      FinishShares(least);
      return least;
    }
    // It fits nowhere: there is no strategy, and every bound holds.
    least.per_sample.clear();
    least.to_predecessors.clear();
    least.shares.clear();
    for (size_t k = 0; k < memory_.size(); ++k) AddKind(node, k, kNoLimit, least);
    FinishShares(least);
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
    std::vector<ShareCost> shares(shares_.size(), kImpossible);
    for (size_t i = 0; i < shares_.size(); ++i) {
      const int64_t samples = shares_[i].samples;
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
      shares[i] = {forward + input, (forward + backward) / n, backward / n, forward};
    }
    least.per_sample.push_back(per_sample);
    least.to_predecessors.push_back(to_predecessors);
    least.shares.push_back(std::move(shares));
  }

  // Forward passes of the other replicas; then only what may be the least is kept.
  void FinishShares(NodeCost& cost) const {
    std::vector<double> first(shares_.size(), kInfinity);
    for (const auto& shares : cost.shares) {
      for (size_t i = 0; i < shares.size(); ++i) first[i] = std::min(first[i], shares[i].forward);
    }
    for (auto& shares : cost.shares) {
      for (size_t i = 0; i < shares.size(); ++i) {
        shares[i].forward = first[i];
        if (shares_[i].less) shares[i].forward = std::min(shares[i].forward, first[i - 1]);
        if (shares_[i].more) shares[i].forward = std::min(shares[i].forward, first[i + 1]);
      }
      std::erase_if(shares, [](const ShareCost& share) { return share.passes == kInfinity; });
      Thin(shares);
    }
  }

  const BoundProblem& problem_;
  const CostModel& costs_;
  const std::vector<Share> shares_;
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
