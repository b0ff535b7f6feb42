#include "planner_service/evaluator/bounds/node_bound.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace stagewright {
namespace {

// Samples per ns of every device, fastest first; infinite where they cost nothing.
std::vector<double> RatesDown(const BoundProblem& problem, const std::vector<double>& per_sample) {
  std::vector<double> rates;
  rates.reserve(problem.cluster.size());
  std::vector<size_t> kinds(per_sample.size());
  std::iota(kinds.begin(), kinds.end(), size_t{0});
  std::sort(kinds.begin(), kinds.end(),
            [&](size_t a, size_t b) { return per_sample[a] < per_sample[b]; });
  for (size_t k : kinds) rates.insert(rates.end(), problem.devices[k], 1 / per_sample[k]);
  return rates;
}

}  // namespace

double BoundPath(const BoundProblem& problem, int32_t v) {
  return problem.head[v] + problem.costs[v].forward + problem.WayBack(v);
}

double BoundNode(const BoundProblem& problem, int32_t v, bool asynchronous,
                 int32_t least_replicas) {
  const NodeCost& cost = problem.costs[v];
  const std::vector<double> whole = RatesDown(problem, cost.per_sample);
  const std::vector<double> returned = RatesDown(problem, cost.to_predecessors);
  const auto batch = static_cast<double>(problem.mini_batch);
  const auto most =
      static_cast<int32_t>(std::min<int64_t>(problem.cluster.size(), problem.mini_batch));
  double best = std::numeric_limits<double>::infinity();
  double rate = 0;
  double returned_rate = 0;
  for (int32_t r = 1; r <= most; ++r) {
    rate += whole[r - 1];
    returned_rate += returned[r - 1];
    if (r < least_replicas) continue;
    const double work = batch / rate;
    const double sum = LeastAllReduceTime(cost.bytes.gradients, r, problem.fastest);
    const double bound = asynchronous
                             ? std::max(work, sum)
                             : problem.head[v] + std::max(work + sum + cost.update,
                                                          batch / returned_rate + problem.tail[v]);
    best = std::min(best, bound);
    // More replicas only shorten the work.
    if (sum + problem.head[v] >= best) break;
  }
  return best;
}

}  // namespace stagewright
