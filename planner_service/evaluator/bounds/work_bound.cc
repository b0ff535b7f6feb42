#include "planner_service/evaluator/bounds/work_bound.h"

#include <algorithm>
#include <limits>

#include "common/cost/update.h"

namespace stagewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Weights found by moving weight between two kinds at a time: the sum is concave in them.
constexpr int kRounds = 4;
constexpr int kThirds = 40;

double Sum(const BoundProblem& problem, const std::vector<WorkItem>& items,
           const KindWeights& weights) {
  double sum = 0;
  for (const WorkItem& item : items) sum += Charged(problem, item, weights);
  return sum;
}

std::vector<WorkItem> Passes(const BoundProblem& problem) {
  std::vector<WorkItem> items;
  for (int32_t v = 0; v < problem.graph.size(); ++v) {
    if (!problem.owned(v)) continue;
    WorkItem& item = items.emplace_back();
    for (double cost : problem.costs[v].per_sample)
      item.push_back(static_cast<double>(problem.mini_batch) * cost);
  }
  return items;
}

std::vector<WorkItem> Updates(const BoundProblem& problem) {
  std::vector<WorkItem> items;
  for (const HeldBytes& bytes : FirstUses(problem)) {
    if (bytes.trained == 0) continue;
    WorkItem& item = items.emplace_back();
    for (const DeviceKind& kind : problem.cluster.kinds())
      item.push_back(LeastOptimizerStepTime(kind, bytes.trained));
  }
  return items;
}

double Rebalance(const BoundProblem& problem, const std::vector<WorkItem>& items, size_t a,
                 size_t b, KindWeights& weights, double best) {
  const double share = weights[a] * problem.devices[a] + weights[b] * problem.devices[b];
  KindWeights trial = weights;
  const auto at = [&](double part) {
    trial[a] = share * part / problem.devices[a];
    trial[b] = share * (1 - part) / problem.devices[b];
    return Sum(problem, items, trial);
  };
  double low = 0;
  double high = 1;
  for (int i = 0; i < kThirds; ++i) {
    const double third = (high - low) / 3;
    if (at(low + third) < at(high - third)) {
      low += third;
    } else {
      high -= third;
    }
  }
  const double found = at((low + high) / 2);
  if (found <= best) return best;
  weights = trial;
  return found;
}

}  // namespace

double Charged(const BoundProblem& problem, const WorkItem& item, const KindWeights& weights) {
  double least = kInfinity;
  for (size_t k = 0; k < weights.size(); ++k) {
    if (problem.devices[k] > 0 && item[k] < kInfinity)
      least = std::min(least, weights[k] * item[k]);
  }
  return least;
}

WorkBound BoundWork(const BoundProblem& problem) {
  std::vector<WorkItem> items = Passes(problem);
  const std::vector<WorkItem> updates = Updates(problem);
  items.insert(items.end(), updates.begin(), updates.end());
  WorkBound bound;
  bound.weights.assign(problem.devices.size(), 1.0 / problem.cluster.size());
  bound.time = Sum(problem, items, bound.weights);
  for (int round = 0; round < kRounds; ++round) {
    for (size_t a = 0; a < bound.weights.size(); ++a) {
      for (size_t b = a + 1; b < bound.weights.size(); ++b) {
        if (problem.devices[a] > 0 && problem.devices[b] > 0)
          bound.time = Rebalance(problem, items, a, b, bound.weights, bound.time);
      }
    }
  }
  bound.updates = Sum(problem, updates, bound.weights);
  return bound;
}

}  // namespace stagewright
