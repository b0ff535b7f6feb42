#include "planner_service/evaluator/bounds/packing_bound.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "planner_service/evaluator/bounds/node_bound.h"

namespace stagewright {
namespace {

// Work that cannot be cut, descending, on so many devices: of the k n + 1 largest pieces, k + 1 are
// on one device.
double Pack(const std::vector<double>& pieces, size_t devices) {
  double largest = 0;
  for (size_t k = 0; k * devices < pieces.size(); ++k) {
    double sum = 0;
    for (size_t i = k * (devices - 1); i <= k * devices; ++i) sum += pieces[i];
    largest = std::max(largest, sum);
  }
  return largest;
}

}  // namespace

double BoundPacking(const BoundProblem& problem, double known, bool asynchronous) {
  // Nodes by what any strategy takes that replicates them.
  std::vector<std::pair<double, int32_t>> replicated;
  for (int32_t v = 0; v < problem.graph.size(); ++v) {
    if (!problem.owned(v) || problem.costs[v].bytes.gradients == 0) continue;
    const double time = BoundNode(problem, v, asynchronous, 2);
    if (time > known) replicated.emplace_back(time, v);
  }
  std::sort(replicated.begin(), replicated.end(), std::greater<>());

  double bound = known;
  std::vector<double> pieces;  // Work of the nodes so far, as one replica does it; descending.
  for (const auto& [time, v] : replicated) {
    if (time <= bound) break;
    const auto& per_sample = problem.costs[v].per_sample;
    const double piece = static_cast<double>(problem.mini_batch) *
                         *std::min_element(per_sample.begin(), per_sample.end());
    pieces.insert(std::upper_bound(pieces.begin(), pieces.end(), piece, std::greater<>()), piece);
    // Faster than `time`, none of these nodes has replicas.
    bound = std::max(bound, std::min(time, Pack(pieces, problem.cluster.size())));
  }
  return bound > known ? bound : 0;
}

}  // namespace stagewright
