#include "planner_service/evaluator/bounds/joint_bound.h"

#include <algorithm>
#include <limits>

#include "planner_service/evaluator/bounds/edge_bytes.h"

namespace stagewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Rounds of Frank and Wolfe's method, and halvings in which each looks for its step.
constexpr int kMostRounds = 24;
constexpr int kHalvings = 8;
constexpr double kLeastGain = 2e-4;

// A mixture of the inequalities "work <= T" and "path <= T", one for each path: non-negative
// weights with sum 1.
struct Mixture {
  double work = 1;
  double ends = 0;          // ns: the ends of the paths, weighted.
  std::vector<double> via;  // By node: the weight of the paths through it.
};

Mixture Between(const Mixture& a, const Mixture& b, double part) {
  Mixture mixture = a;
  mixture.work += part * (b.work - a.work);
  mixture.ends += part * (b.ends - a.ends);
  for (size_t v = 0; v < mixture.via.size(); ++v) mixture.via[v] += part * (b.via[v] - a.via[v]);
  return mixture;
}

class Joint {
 public:
  Joint(const BoundProblem& problem, const WorkBound& work)
      : problem_(problem), work_(work), charge_(work.weights) {
    for (double& charge : charge_) charge *= static_cast<double>(problem.mini_batch);
    const Graph& graph = problem.graph;
    for (int32_t v : graph.dag().order()) {
      for (int32_t u : graph.dag().Predecessors(v)) {
        const bool frozen = !graph.needs_backward(NodeId(u));
        if (frozen || GradientReturns(graph, NodeId(u), NodeId(v)))
          steps_.push_back({u, v, frozen});
      }
    }
  }

  double Best() const {
    Mixture mixture;
    mixture.via.assign(problem_.graph.size(), 0);
    std::vector<ShareCost> answer;
    double best = Answer(mixture, answer);
    for (int round = 0; round < kMostRounds; ++round) {
      const Mixture corner = Hardest(answer);
      const Mixture next = LineSearch(mixture, corner);
      const double found = Answer(next, answer);
      if (found <= best * (1 + kLeastGain)) return std::max(best, found);
      best = found;
      mixture = next;
    }
    return best;
  }

 private:
  struct Step {
    int32_t from;
    int32_t to;
    bool frozen;  // `from` has no backward pass: a way back ends before it.
  };

  // The mixture's value: the least that shares can make of it, and these shares.
  double Answer(const Mixture& mixture, std::vector<ShareCost>& answer) const {
    answer.assign(problem_.graph.size(), {});
    double sum = mixture.work * work_.updates + mixture.ends;
    for (int32_t v = 0; v < problem_.graph.size(); ++v) {
      double least = kInfinity;
      const auto& kinds = problem_.costs[v].shares;
      for (size_t k = 0; k < kinds.size(); ++k) {
        for (const ShareCost& share : kinds[k]) {
          const double work = charge_[k] * share.per_sample;
          const double value = mixture.work * work + mixture.via[v] * share.passes;
          if (value >= least) continue;
          least = value;
          answer[v] = {share.passes, work};
        }
      }
      if (!kinds.empty()) sum += least;
    }
    return sum;
  }

  // What a mixture makes of given shares.
  double ValueOf(const Mixture& mixture, const std::vector<ShareCost>& answer) const {
    double work = work_.updates;
    double paths = mixture.ends;
    for (size_t v = 0; v < answer.size(); ++v) {
      work += answer[v].per_sample;
      paths += mixture.via[v] * answer[v].passes;
    }
    return mixture.work * work + paths;
  }

  // The inequality that is worst broken by an answer, on its own.
  Mixture Hardest(const std::vector<ShareCost>& answer) const {
    double work = work_.updates;
    for (const ShareCost& share : answer) work += share.per_sample;
    // Longest ways to and through each node, and back.
    std::vector<double> longest(answer.size());
    std::vector<int32_t> before(answer.size(), -1);
    for (size_t v = 0; v < answer.size(); ++v)
      longest[v] = answer[v].passes + EndOf(static_cast<int32_t>(v));
    for (const Step& step : steps_) {
      const double through =
          longest[step.from] + answer[step.to].passes + (step.frozen ? EndOf(step.to) : 0);
      if (through <= longest[step.to]) continue;
      longest[step.to] = through;
      before[step.to] = step.from;
    }
    const auto last = std::max_element(longest.begin(), longest.end());
    Mixture corner;
    corner.via.assign(answer.size(), 0);
    if (last == longest.end() || *last <= work) return corner;
    corner.work = 0;
    int32_t v = static_cast<int32_t>(last - longest.begin());
    for (; v >= 0; v = before[v]) {
      corner.via[v] = 1;
      const bool returns = problem_.graph.needs_backward(NodeId(v));
      if (returns && (before[v] < 0 || !problem_.graph.needs_backward(NodeId(before[v]))))
        corner.ends = EndOf(v);
    }
    return corner;
  }

  // What is still to come when the input half of a path's first backward pass is done.
  double EndOf(int32_t v) const { return problem_.costs[v].weight + problem_.costs[v].update; }

  // Where the value is largest between two mixtures: it is concave, and what the best answer makes
  // of both ends tells on which side to go on.
  Mixture LineSearch(const Mixture& from, const Mixture& to) const {
    std::vector<ShareCost> answer;
    double low = 0;
    double high = 1;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      Answer(Between(from, to, middle), answer);
      (ValueOf(to, answer) > ValueOf(from, answer) ? low : high) = middle;
    }
    return Between(from, to, (low + high) / 2);
  }

  const BoundProblem& problem_;
  const WorkBound& work_;
  KindWeights charge_;       // ns of the mini-batch's work per ns that a sample takes, by kind.
  std::vector<Step> steps_;  // In topological order of `to`.
};

}  // namespace

double BoundJointly(const BoundProblem& problem, const WorkBound& work) {
  return std::max(work.time, Joint(problem, work).Best());
}

}  // namespace stagewright
