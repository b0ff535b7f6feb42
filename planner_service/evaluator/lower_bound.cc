#include "planner_service/evaluator/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "common/cost/collectives.h"
#include "common/cost/parameters.h"
#include "common/cost/update.h"

namespace stagewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Bytes kNoLimit = std::numeric_limits<Bytes>::max();

// The least a node can cost; ns, each minimum on its own.
struct LeastCost {
  double forward = 0;  // Forward pass of one action, on any kind.
  double input = 0;    // Input half of its backward pass.
  double weight = 0;
  double update = 0;
  std::vector<double> per_sample;       // By kind: forward + backward, a sample.
  std::vector<double> to_predecessors;  // By kind: forward + input half, a sample.
};

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

class Bound {
 public:
  Bound(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
        const CostModel& costs, int64_t mini_batch, const BoundOptions& options)
      : graph_(graph),
        operators_(operators),
        cluster_(cluster),
        costs_(costs),
        batch_(static_cast<double>(mini_batch)),
        options_(options),
        sizes_(ShareSizes(mini_batch, cluster.size())),
        fastest_(FastestOf(cluster, AllDevices(cluster))),
        devices_(cluster.kinds().size()),
        memory_(cluster.kinds().size()) {
    for (const Device& device : cluster.devices()) {
      ++devices_[device.kind];
      memory_[device.kind] = std::max(memory_[device.kind], device.memory);
    }
    least_.resize(graph.size());
    for (int32_t v = 0; v < graph.size(); ++v) {
      if (operators.owner(NodeId(v)).valid()) least_[v] = LeastOf(NodeId(v));
    }
    MeasurePaths();
  }

  double Largest() const {
    double bound = WorkBound();
    const int32_t most = static_cast<int32_t>(std::min<double>(cluster_.size(), batch_));
    for (int32_t v = 0; v < graph_.size(); ++v) {
      if (!operators_.owner(NodeId(v)).valid()) continue;  // Replicated: free.
      bound = std::max(bound, NodeBound(NodeId(v), most));
      if (!options_.asynchronous) bound = std::max(bound, PathBound(v));
    }
    return bound;
  }

 private:
  HeldBytes BytesOf(NodeId node) const {
    HeldBytes bytes;
    if (const auto& cost = graph_.node(node).cost) {
      bytes = LeastBytesHeld(*cost, options_.optimizer);
    }
    for (ParameterId id : graph_.Parameters(node)) {
      bytes += LeastBytesHeld(graph_.parameter(id), options_.optimizer);
    }
    if (!graph_.needs_backward(node)) bytes.trained = bytes.gradients = 0;
    return bytes;
  }

  bool Fits(NodeId node, Bytes resident, int64_t samples, Bytes memory) const {
    return resident + costs_.SavedBytes(node, samples) <= memory;
  }

  LeastCost LeastOf(NodeId node) const {
    LeastCost least{kInfinity, kInfinity, kInfinity, kInfinity, {}, {}};
    const HeldBytes bytes = BytesOf(node);
    for (size_t k = 0; k < devices_.size(); ++k) {
      // If the largest share fits, smaller ones do, or may be taken to.
      const bool all_fit = Fits(node, bytes.resident, sizes_.back(), memory_[k]);
      AddKind(node, k, all_fit ? kNoLimit : memory_[k], bytes, least);
    }
    // It fits nowhere: there is no strategy, and every bound holds.
    if (least.forward == kInfinity) {
      least.per_sample.clear();
      least.to_predecessors.clear();
      for (size_t k = 0; k < devices_.size(); ++k) {
        AddKind(node, k, kNoLimit, bytes, least);
      }
    }
    return least;
  }

  void AddKind(NodeId node, size_t k, Bytes memory, const HeldBytes& bytes,
               LeastCost& least) const {
    const DeviceKind& kind = cluster_.kinds()[k];
    const bool has_backward = graph_.needs_backward(node);
    double per_sample = kInfinity;
    double to_predecessors = kInfinity;
    for (int64_t samples : sizes_) {
      if (devices_[k] == 0) break;
      if (memory != kNoLimit && !Fits(node, bytes.resident, samples, memory)) continue;
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
      least.update = std::min(least.update, LeastOptimizerStepTime(kind, bytes.trained));
      const auto n = static_cast<double>(samples);
      per_sample = std::min(per_sample, (forward + backward) / n);
      to_predecessors = std::min(to_predecessors, (forward + input) / n);
    }
    least.per_sample.push_back(per_sample);
    least.to_predecessors.push_back(to_predecessors);
  }

  // Whether a tensor with a gradient flows from a node to its reader, both with a backward pass:
  // then the backward pass of `node` waits for that of `next`, as in common/lowering/channels.cc.
  bool GradientReturns(NodeId node, NodeId next) const {
    if (!graph_.needs_backward(node) || !graph_.needs_backward(next)) return false;
    if (graph_.node(node).cost) return true;
    for (ValueRef value : graph_.Values(next)) {
      if (value.node == node && IsFloating(graph_.meta(value).dtype)) return true;
    }
    return false;
  }

  void MeasurePaths() {
    head_.assign(graph_.size(), 0);
    tail_.assign(graph_.size(), 0);
    for (int32_t v : graph_.dag().order()) {
      for (int32_t u : graph_.dag().Predecessors(v)) {
        head_[v] = std::max(head_[v], head_[u] + least_[u].forward);
        if (!GradientReturns(NodeId(u), NodeId(v))) continue;
        tail_[v] = std::max(tail_[v], WayBack(u));
      }
    }
  }

  // From the start of a node's part of a backward pass to the end of the step.
  double WayBack(int32_t v) const {
    return least_[v].input + std::max(least_[v].weight + least_[v].update, tail_[v]);
  }

  double PathBound(int32_t v) const { return head_[v] + least_[v].forward + WayBack(v); }

  double NodeBound(NodeId node, int32_t most_replicas) const {
    const int32_t v = node.value();
    const LeastCost& least = least_[v];
    const Bytes gradients = BytesOf(node).gradients;
    const std::vector<double> whole = RatesDown(least.per_sample);
    const std::vector<double> returned = RatesDown(least.to_predecessors);
    double best = kInfinity;
    double rate = 0;
    double returned_rate = 0;
    for (int32_t r = 1; r <= most_replicas; ++r) {
      rate += whole[r - 1];
      returned_rate += returned[r - 1];
      const double work = batch_ / rate;
      const double sum = LeastAllReduceTime(gradients, r, fastest_);
      const double bound =
          options_.asynchronous
              ? std::max(work, sum)
              : head_[v] + std::max(work + sum + least.update, batch_ / returned_rate + tail_[v]);
      best = std::min(best, bound);
      // More replicas only shorten the work.
      if (sum + head_[v] >= best) break;
    }
    return best;
  }

  // Samples per ns of every device, fastest first; infinite where they cost nothing.
  std::vector<double> RatesDown(const std::vector<double>& per_sample) const {
    std::vector<double> rates;
    rates.reserve(cluster_.size());
    std::vector<size_t> kinds(per_sample.size());
    std::iota(kinds.begin(), kinds.end(), size_t{0});
    std::sort(kinds.begin(), kinds.end(),
              [&](size_t a, size_t b) { return per_sample[a] < per_sample[b]; });
    for (size_t k : kinds) rates.insert(rates.end(), devices_[k], 1 / per_sample[k]);
    return rates;
  }

  // What some device has to do; the cost by kind.
  struct Item {
    std::vector<double> cost;
  };

  std::vector<Item> WorkItems() const {
    std::vector<Item> items;
    std::vector<bool> seen(graph_.parameters().size());
    const auto update = [&](Bytes trained) {
      Item item;
      for (const DeviceKind& kind : cluster_.kinds())
        item.cost.push_back(LeastOptimizerStepTime(kind, trained));
      items.push_back(std::move(item));
    };
    for (int32_t v = 0; v < graph_.size(); ++v) {
      const NodeId node(v);
      if (!operators_.owner(node).valid()) continue;
      Item item;
      for (double cost : least_[v].per_sample) item.cost.push_back(batch_ * cost);
      items.push_back(std::move(item));
      if (!graph_.needs_backward(node)) continue;
      if (const auto& cost = graph_.node(node).cost) {
        update(LeastBytesHeld(*cost, options_.optimizer).trained);
      }
      for (ParameterId id : graph_.Parameters(node)) {
        const Parameter& parameter = graph_.parameter(id);
        if (parameter.trainable && !seen[id.index()]) {
          update(LeastBytesHeld(parameter, options_.optimizer).trained);
        }
        seen[id.index()] = true;
      }
    }
    return items;
  }

  // The sum over the items of their least weighted cost; `weight` sums to 1 over the devices.
  double Weighted(const std::vector<Item>& items, const std::vector<double>& weight) const {
    double sum = 0;
    for (const Item& item : items) {
      double least = kInfinity;
      for (size_t k = 0; k < weight.size(); ++k) {
        if (devices_[k] > 0 && item.cost[k] < kInfinity) {
          least = std::min(least, weight[k] * item.cost[k]);
        }
      }
      sum += least;
    }
    return sum;
  }

  // Weights found by moving weight between two kinds at a time: the sum is concave in them.
  double WorkBound() const {
    const std::vector<Item> items = WorkItems();
    std::vector<double> weight(devices_.size(), 1.0 / cluster_.size());
    double best = Weighted(items, weight);
    for (int round = 0; round < 4; ++round) {
      for (size_t a = 0; a < weight.size(); ++a) {
        for (size_t b = a + 1; b < weight.size(); ++b) {
          if (devices_[a] > 0 && devices_[b] > 0) best = Rebalance(items, a, b, weight, best);
        }
      }
    }
    return best;
  }

  double Rebalance(const std::vector<Item>& items, size_t a, size_t b, std::vector<double>& weight,
                   double best) const {
    const double share = weight[a] * devices_[a] + weight[b] * devices_[b];
    std::vector<double> trial = weight;
    const auto at = [&](double part) {
      trial[a] = share * part / devices_[a];
      trial[b] = share * (1 - part) / devices_[b];
      return Weighted(items, trial);
    };
    double low = 0;
    double high = 1;
    for (int i = 0; i < 40; ++i) {
      const double third = (high - low) / 3;
      if (at(low + third) < at(high - third)) {
        low += third;
      } else {
        high -= third;
      }
    }
    const double found = at((low + high) / 2);
    if (found <= best) return best;
    weight = trial;
    return found;
  }

  const Graph& graph_;
  const OperatorGraph& operators_;
  const Cluster& cluster_;
  const CostModel& costs_;
  const double batch_;
  const BoundOptions options_;
  const std::vector<int64_t> sizes_;
  const FastestExchange fastest_;
  std::vector<int32_t> devices_;  // By kind: how many devices.
  std::vector<Bytes> memory_;     // By kind: the largest memory.
  // By node.
  std::vector<LeastCost> least_;
  std::vector<double> head_;
  std::vector<double> tail_;
};

}  // namespace

Nanos LowerBound(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
                 const CostModel& costs, int64_t mini_batch, const BoundOptions& options) {
  const double bound = Bound(graph, operators, cluster, costs, mini_batch, options).Largest();
  // One part in 10^12 for the rounding of floating-point sums.
  return static_cast<Nanos>(std::floor(bound * (1 - 1e-12)));
}

}  // namespace stagewright
