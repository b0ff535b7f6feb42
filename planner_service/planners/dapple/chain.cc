#include "planner_service/planners/dapple/chain.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"
#include "planner_service/models/layers.h"

namespace stagewright::dapple {
namespace {

// Over the cut at each position of `order`: the output of layers before it that one after it reads.
std::vector<double> Boundaries(const Dag& dag, const std::vector<int32_t>& order,
                               const std::vector<double>& output) {
  const size_t size = order.size();
  std::vector<int32_t> position(size);
  for (size_t p = 0; p < size; ++p) position[order[p]] = static_cast<int32_t>(p);
  std::vector<double> change(size + 2, 0);
  for (size_t p = 0; p < size; ++p) {
    int32_t last = -1;
    for (int32_t w : dag.Successors(order[p])) last = std::max(last, position[w]);
    if (last < 0) continue;
    change[p + 1] += output[order[p]];
    change[last + 1] -= output[order[p]];
  }
  std::vector<double> boundary(size + 1, 0);
  for (size_t p = 1; p <= size; ++p) boundary[p] = boundary[p - 1] + change[p];
  for (double& bytes : boundary) bytes = std::max(bytes, 0.0);
  return boundary;
}

}  // namespace

ChainCosts ProfiledChain(const Graph& graph, const std::vector<int32_t>& order, double samples) {
  ChainCosts costs;
  costs.forward = {{0}};
  costs.backward = {{0}};
  costs.least = {0};
  costs.parameters = {0};
  std::vector<double> output(graph.size());
  for (int32_t v : order) {
    const Node& node = graph.node(NodeId(v));
    CHECK(node.cost.has_value());
    const double scale = samples / static_cast<double>(node.cost->samples);
    costs.forward[0].push_back(costs.forward[0].back() + ToSeconds(node.cost->forward) * scale);
    costs.backward[0].push_back(costs.backward[0].back() + ToSeconds(node.cost->backward) * scale);
    costs.least.push_back(costs.forward[0].back() + costs.backward[0].back());
    costs.parameters.push_back(costs.parameters.back() +
                               static_cast<double>(node.cost->parameter_bytes));
    output[v] = static_cast<double>(node.cost->activation_bytes) * scale;
  }
  costs.boundary = Boundaries(graph.dag(), order, output);
  return costs;
}

Chain::Chain(const StageOracle& oracle, int32_t most_cuts) : oracle_(oracle) {
  const int32_t size = oracle.size();
  std::vector<int32_t> order(size);
  for (int32_t p = 0; p < size; ++p) order[p] = p;
  const std::vector<double> boundary = Boundaries(LayerGraph(oracle), order, LayerOutputs(oracle));
  const ShareCosts& one = oracle.Share(1);
  const double total = one.Time(0, size);
  double parameters = 0;
  double next = 0;
  for (int32_t p = 0; p <= size; ++p) {
    if (p > 0) parameters += static_cast<double>(oracle.At(p - 1, p).gradients);
    // Half by work and half by number, so that neither heavy nor many light layers lack cuts.
    const double share = static_cast<double>(p) / size;
    const double progress = ((total > 0 ? one.Time(0, p) / total : share) + share) / 2;
    if (size > most_cuts && p > 0 && p < size && progress * most_cuts < next) continue;
    next = progress * most_cuts + 1;
    cuts_.push_back(p);
    boundary_.push_back(boundary[p]);
    parameters_.push_back(parameters);
  }
}

ChainCosts Chain::CostsOf(int64_t samples, int32_t devices) const {
  ChainCosts costs;
  costs.parameters = parameters_;
  costs.boundary = boundary_;
  for (double& bytes : costs.boundary) bytes *= static_cast<double>(samples);
  std::vector<double> each(cuts_.size(), std::numeric_limits<double>::infinity());
  for (int32_t m = 1; m <= devices && m <= samples; ++m) {
    const ShareCosts& share = oracle_.Share((samples + m - 1) / m);
    const double scale = 1e-9 * m;
    std::vector<double>& forward = costs.forward.emplace_back();
    std::vector<double>& backward = costs.backward.emplace_back();
    for (size_t c = 0; c < cuts_.size(); ++c) {
      forward.push_back(share.Forward(0, cuts_[c]) * scale);
      backward.push_back(share.Time(0, cuts_[c]) * scale - forward.back());
      if (c > 0) each[c] = std::min(each[c], share.Time(cuts_[c - 1], cuts_[c]) * scale);
    }
  }
  costs.least = {0};
  for (size_t c = 1; c < cuts_.size(); ++c) costs.least.push_back(costs.least.back() + each[c]);
  return costs;
}

}  // namespace stagewright::dapple
