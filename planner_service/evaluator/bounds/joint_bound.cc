#include "planner_service/evaluator/bounds/joint_bound.h"

#include <algorithm>
#include <limits>

#include "planner_service/evaluator/bounds/edge_bytes.h"

namespace stagewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int32_t kNone = -1;
// Rounds of Frank and Wolfe's method, and halvings in which each looks for its step.
constexpr int kMostRounds = 24;
constexpr int kHalvings = 8;
constexpr double kLeastGain = 2e-4;
// Steps of given length, and how many shares they look at, all together.
constexpr int64_t kMostSmallSteps = 256;
constexpr int64_t kFirstStep = 4;
constexpr int64_t kMostLooks = 500'000;
// Ways are followed together that are so close to the longest.
constexpr double kNearly = 0.98;

// A mixture of the inequalities "work <= T", "path <= T", one for each path, and "turn <= T", one
// for each way to the loss: non-negative weights with sum 1.
struct Mixture {
  double work = 1;
  double turn = 0;
  double ends = 0;           // ns: the ends of the paths, weighted.
  std::vector<double> via;   // By node: the weight of the paths through it.
  std::vector<double> down;  // By node: the weight of the ways to the loss through it.
};

Mixture Between(const Mixture& a, const Mixture& b, double part) {
  Mixture mixture = a;
  mixture.work += part * (b.work - a.work);
  mixture.turn += part * (b.turn - a.turn);
  mixture.ends += part * (b.ends - a.ends);
  for (size_t v = 0; v < mixture.via.size(); ++v) {
    mixture.via[v] += part * (b.via[v] - a.via[v]);
    mixture.down[v] += part * (b.down[v] - a.down[v]);
  }
  return mixture;
}

ShareCost Between(const ShareCost& a, const ShareCost& b, double part) {
  return {
      a.passes + part * (b.passes - a.passes), a.per_sample + part * (b.per_sample - a.per_sample),
      a.backward + part * (b.backward - a.backward), a.forward + part * (b.forward - a.forward)};
}

class Joint {
 public:
  Joint(const BoundProblem& problem, const WorkBound& work)
      : problem_(problem), work_(work), charge_(work.weights) {
    for (double& charge : charge_) charge *= static_cast<double>(problem.mini_batch);
    const Graph& graph = problem.graph;
    int32_t losses = 0;
    std::vector<bool> gradient_comes(graph.size());
    for (int32_t v : graph.dag().order()) {
      for (int32_t u : graph.dag().Predecessors(v)) {
        const bool frozen = !graph.needs_backward(NodeId(u));
        const bool returns = GradientReturns(graph, NodeId(u), NodeId(v));
        if (frozen || returns) steps_.push_back({u, v, frozen});
        if (returns) gradient_comes[u] = true;
      }
    }
    for (int32_t v = 0; v < graph.size(); ++v) {
      if (!problem.owned(v) || !graph.needs_backward(NodeId(v)) || gradient_comes[v]) continue;
      loss_ = losses++ == 0 ? v : kNone;
    }
  }

  double Best() const {
    Mixture mixture;
    mixture.via.assign(problem_.graph.size(), 0);
    mixture.down = mixture.via;
    std::vector<ShareCost> answer;
    double best = Answer(mixture, answer);
    for (int round = 0; round < kMostRounds; ++round) {
      mixture = LineSearch(mixture, Hardest(answer));
      const double found = Answer(mixture, answer);
      const bool gains = found > best * (1 + kLeastGain);
      best = std::max(best, found);
      if (!gains) break;
    }
    // Where the value has an edge, lines from it lead down. There mixtures and answers take turns,
    // each the best against the mean of the others so far.
    std::vector<ShareCost> mean = answer;
    for (int64_t round = 0; round < SmallSteps(); ++round) {
      const double part = 1.0 / static_cast<double>(kFirstStep + round);
      mixture = Between(mixture, Hardest(mean), part);
      best = std::max(best, Answer(mixture, answer));
      for (size_t v = 0; v < mean.size(); ++v) mean[v] = Between(mean[v], answer[v], part);
    }
    return best;
  }

 private:
  struct Step {
    int32_t from;
    int32_t to;
    bool frozen;  // `from` has no backward pass: a way back ends before it.
  };

  // As many as take some ms.
  int64_t SmallSteps() const {
    int64_t shares = 1;
    for (const NodeCost& cost : problem_.costs) {
      for (const auto& of_kind : cost.shares) shares += static_cast<int64_t>(of_kind.size());
    }
    return std::min(kMostSmallSteps, kMostLooks / shares);
  }

  // The mixture's value: the least that shares can make of it, and these shares, with work charged
  // for the whole mini-batch.
  double Answer(const Mixture& mixture, std::vector<ShareCost>& answer) const {
    answer.assign(problem_.graph.size(), {});
    double sum = (mixture.work + mixture.turn) * work_.updates + mixture.ends;
    for (int32_t v = 0; v < problem_.graph.size(); ++v) {
      double least = kInfinity;
      const auto& kinds = problem_.costs[v].shares;
      for (size_t k = 0; k < kinds.size(); ++k) {
        for (const ShareCost& share : kinds[k]) {
          const double value =
              charge_[k] * (mixture.work * share.per_sample + mixture.turn * share.backward) +
              mixture.via[v] * share.passes + mixture.down[v] * share.forward;
          if (value >= least) continue;
          least = value;
          answer[v] = {share.passes, charge_[k] * share.per_sample, charge_[k] * share.backward,
                       share.forward};
        }
      }
      if (!kinds.empty()) sum += least;
    }
    return sum;
  }

  // What a mixture makes of given shares.
  double ValueOf(const Mixture& mixture, const std::vector<ShareCost>& answer) const {
    double sum = (mixture.work + mixture.turn) * work_.updates + mixture.ends;
    for (size_t v = 0; v < answer.size(); ++v) {
      sum += mixture.work * answer[v].per_sample + mixture.turn * answer[v].backward +
             mixture.via[v] * answer[v].passes + mixture.down[v] * answer[v].forward;
    }
    return sum;
  }

  // The inequality that is worst broken by an answer, on its own.
  Mixture Hardest(const std::vector<ShareCost>& answer) const {
    Mixture work;
    work.via.assign(answer.size(), 0);
    work.down = work.via;
    Mixture hardest = work;
    double most = ValueOf(work, answer);
    for (const Mixture& other : {LongestPaths(work, answer), Turn(work, answer)}) {
      const double value = ValueOf(other, answer);
      if (value <= most) continue;
      most = value;
      hardest = other;
    }
    return hardest;
  }

  // The longest ways there and back, in place of the work in `mixture`.
  Mixture LongestPaths(Mixture mixture, const std::vector<ShareCost>& answer) const {
    // Longest ways to and through each node, and back.
    std::vector<double> longest(answer.size());
    for (size_t v = 0; v < answer.size(); ++v)
      longest[v] = answer[v].passes + EndOf(static_cast<int32_t>(v));
    const auto through = [&](const Step& step) {
      return longest[step.from] + answer[step.to].passes + (step.frozen ? EndOf(step.to) : 0);
    };
    for (const Step& step : steps_) longest[step.to] = std::max(longest[step.to], through(step));
    const auto last = std::max_element(longest.begin(), longest.end());
    if (last == longest.end()) return mixture;
    mixture.work = 0;
    mixture.via[last - longest.begin()] = 1;
    std::vector<bool> begins(answer.size(), true);  // By node: ways through it begin there.
    for (auto step = steps_.rbegin(); step != steps_.rend();) {
      const int32_t v = step->to;
      const auto begin = step;
      while (step != steps_.rend() && step->to == v) ++step;
      const auto near = [&](const Step& into) { return through(into) >= kNearly * longest[v]; };
      const auto parts = static_cast<double>(std::count_if(begin, step, near));
      for (auto into = begin; into != step; ++into) {
        if (mixture.via[v] == 0 || !near(*into)) continue;
        mixture.via[into->from] += mixture.via[v] / parts;
        if (into->frozen) mixture.ends += mixture.via[v] / parts * EndOf(v);
      }
      begins[v] = parts == 0;
    }
    for (size_t v = 0; v < begins.size(); ++v) {
      if (begins[v]) mixture.ends += mixture.via[v] * EndOf(static_cast<int32_t>(v));
    }
    return mixture;
  }

  // The longest ways to the loss, and the work that can only follow, in place of all work.
  Mixture Turn(Mixture mixture, const std::vector<ShareCost>& answer) const {
    if (loss_ == kNone) return mixture;
    const Dag& dag = problem_.graph.dag();
    std::vector<double> arrival(answer.size());
    const auto end = [&](int32_t v) { return arrival[v] + answer[v].forward; };
    for (int32_t v : dag.order()) {
      for (int32_t u : dag.Predecessors(v)) arrival[v] = std::max(arrival[v], end(u));
    }
    mixture.work = 0;
    mixture.turn = 1;
    mixture.down[loss_] = 1;
    for (auto v = dag.order().rbegin(); v != dag.order().rend(); ++v) {
      if (mixture.down[*v] == 0) continue;
      const auto near = [&](int32_t u) { return end(u) >= kNearly * arrival[*v]; };
      const auto& predecessors = dag.Predecessors(*v);
      const auto parts =
          static_cast<double>(std::count_if(predecessors.begin(), predecessors.end(), near));
      for (int32_t u : predecessors) {
        if (near(u)) mixture.down[u] += mixture.down[*v] / parts;
      }
    }
    return mixture;
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
  // The node to which no gradient comes back, if there is one only.
  int32_t loss_ = kNone;
};

}  // namespace

double BoundJointly(const BoundProblem& problem, const WorkBound& work) {
  return std::max(work.time, Joint(problem, work).Best());
}

}  // namespace stagewright
