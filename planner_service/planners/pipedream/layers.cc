#include "planner_service/planners/pipedream/layers.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "common/base/check.h"
#include "planner_service/models/layers.h"

namespace stagewright::pipedream {
namespace {

// The slowest route between two devices for which `counts` holds; 0 if there is none.
template <typename Counts>
double SlowestRoute(const Cluster& cluster, Counts counts) {
  double slowest = 0;
  for (int32_t a = 0; a < cluster.size(); ++a) {
    for (int32_t b = 0; b < cluster.size(); ++b) {
      if (a == b || !counts(cluster.devices()[a], cluster.devices()[b])) continue;
      const double rate = cluster.route(DeviceId(a), DeviceId(b)).bytes_per_second;
      if (slowest == 0 || rate < slowest) slowest = rate;
    }
  }
  return slowest;
}

}  // namespace

LayerProfile ProfileOf(const Graph& graph) {
  LayerProfile profile;
  profile.dag = graph.dag();
  for (const Node& node : graph.nodes()) {
    CHECK(node.cost.has_value());
    profile.seconds.push_back(ToSeconds(node.cost->forward + node.cost->backward));
    profile.output.push_back(static_cast<double>(node.cost->activation_bytes));
    profile.parameters.push_back(static_cast<double>(node.cost->parameter_bytes));
  }
  return profile;
}

Layers::Layers(const StageOracle& oracle)
    : oracle_(oracle), dag_(LayerGraph(oracle)), output_(LayerOutputs(oracle)) {
  for (int32_t p = 0; p < oracle.size(); ++p) {
    const StageOracle::Extent& own = oracle.At(p, p + 1);
    parameters_.push_back(static_cast<double>(own.gradients));
    resident_.push_back(static_cast<double>(own.resident));
  }
}

std::vector<double> Layers::SecondsOf(int64_t samples) const {
  const ShareCosts& share = oracle_.Share(samples);
  std::vector<double> seconds(oracle_.size());
  for (int32_t p = 0; p < oracle_.size(); ++p) seconds[p] = share.Time(p, p + 1) * 1e-9;
  return seconds;
}

StateCosts Layers::CostsOf(const States& states, int64_t samples, int32_t machines) const {
  StateCosts costs;
  std::map<int64_t, std::vector<double>> by_share;  // Cumulative seconds of one share.
  std::vector<double> least;
  for (int32_t m = 1; m <= machines && m <= samples; ++m) {
    const int64_t share = (samples + m - 1) / m;
    auto it = by_share.find(share);
    if (it == by_share.end()) {
      const std::vector<double> seconds = SecondsOf(share);
      it = by_share.emplace(share, states.Sum(seconds)).first;
    }
    std::vector<double> whole(states.size());
    for (int32_t s = 0; s < states.size(); ++s) whole[s] = it->second[s] * m;
    costs.whole.push_back(std::move(whole));
  }
  // Each share's time times its replicas; of equal shares, the fewest replicas are the least.
  least.assign(oracle_.size(), Recurrence::kNever);
  for (const auto& [share, sums] : by_share) {
    const auto replicas = static_cast<double>((samples + share - 1) / share);
    const std::vector<double> seconds = SecondsOf(share);
    for (int32_t p = 0; p < oracle_.size(); ++p) {
      least[p] = std::min(least[p], seconds[p] * replicas);
    }
  }
  costs.least = states.Sum(least);
  costs.parameters = states.Sum(parameters_);
  costs.boundary = states.Boundary(dag_, output_);
  for (double& bytes : costs.boundary) bytes *= static_cast<double>(samples);
  return costs;
}

MemoryLimits Layers::MemoryOf(const States& states, int64_t samples, bool asynchronous,
                              double share) const {
  MemoryLimits memory;
  const ShareCosts& costs = oracle_.Share(samples);
  memory.budget = share * static_cast<double>(oracle_.budget());
  memory.workspace_per_sample =
      static_cast<double>(costs.Workspace(0, oracle_.size())) / static_cast<double>(samples);
  memory.resident = states.Sum(resident_);
  std::vector<double> saved(oracle_.size());
  for (int32_t p = 0; p < oracle_.size(); ++p) {
    saved[p] = static_cast<double>(costs.Saved(p, p + 1)) / static_cast<double>(samples);
  }
  memory.saved_per_sample = states.Sum(saved);
  memory.versions = asynchronous ? 1 : 0;
  memory.mini_batch = samples;
  memory.most_in_flight =
      asynchronous ? std::numeric_limits<int64_t>::max() : oracle_.problem().mini_batch / samples;
  return memory;
}

std::vector<Level> FlatLevels(const Cluster& cluster) {
  const double bandwidth = SlowestRoute(cluster, [](const Device&, const Device&) { return true; });
  return {{cluster.size(), bandwidth > 0 ? bandwidth : 1}};
}

std::vector<Level> HierarchicalLevels(const Cluster& cluster) {
  std::map<int32_t, int32_t> sizes;
  for (const Device& device : cluster.devices()) ++sizes[device.node];
  const int32_t each = sizes.begin()->second;
  const bool even = std::all_of(sizes.begin(), sizes.end(),
                                [&](const auto& node) { return node.second == each; });
  if (!even || each == 1 || sizes.size() == 1) return {};
  const double inside =
      SlowestRoute(cluster, [](const Device& a, const Device& b) { return a.node == b.node; });
  const double outside =
      SlowestRoute(cluster, [](const Device& a, const Device& b) { return a.node != b.node; });
  return {{each, inside}, {static_cast<int32_t>(sizes.size()), outside}};
}

}  // namespace stagewright::pipedream
