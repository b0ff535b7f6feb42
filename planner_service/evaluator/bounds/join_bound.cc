#include "planner_service/evaluator/bounds/join_bound.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "planner_service/evaluator/bounds/cut_rates.h"
#include "planner_service/evaluator/bounds/producer_tree.h"

namespace stagewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int32_t kMostTreeNodes = 256;
constexpr size_t kMostRoots = 16;
constexpr int kMostPrograms = 512;  // Linear programs that are solved; without more, no bound.
constexpr int kRounds = 16;
constexpr int kHalvings = 12;
constexpr double kRounding = 3;  // ns that AllReduceTime may be below its exact value.

// The inequalities of one number of groups, each "value <= T".
enum Limit : size_t { kCompute, kBytesIn, kBytesOut, kSums, kLimits };
using Values = std::array<double, kLimits>;

Values Between(const Values& a, const Values& b, double part) {
  Values values{};
  for (size_t i = 0; i < kLimits; ++i) values[i] = a[i] + part * (b[i] - a[i]);
  return values;
}

double Dot(const Values& a, const Values& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Some number of groups.
struct Groups {
  double devices = 0;  // In these groups, together.
  double in = 0;       // Bytes per ns into all of them, and out.
  double out = 0;
  double share = 1;  // The largest part of the samples in one group.
};

// What the root's replicas in some number of groups have to keep to.
struct Terms : Groups {
  double before_in = 0;  // ns of a step in which no byte can come in, and go out.
  double before_out = 0;
  double sum_per_byte = 0;  // ns that each further group's replicas sum a byte for.
};

// Chooses for each tree node on what part of the samples it runs beside the root: none, `share`
// (replicas in one group) or all.
class Program {
 public:
  Program(const BoundProblem& problem, const ProducerTree& tree, const Terms& terms)
      : batch_(static_cast<double>(problem.mini_batch)), tree_(tree), terms_(terms) {
    parts_ = {0, terms.share, 1};
  }

  // The largest found of min over choices of the weighted limits.
  double Solve() const {
    Values weights{};
    weights[kBytesIn] = 1;
    auto [best, values] = Answer(weights);
    for (int round = 0; round < kRounds; ++round) {
      Values corner{};
      corner[std::max_element(values.begin(), values.end()) - values.begin()] = 1;
      double low = 0;
      double high = 1;
      for (int i = 0; i < kHalvings; ++i) {
        const double middle = (low + high) / 2;
        const Values at = Answer(Between(weights, corner, middle)).second;
        (Dot(corner, at) > Dot(weights, at) ? low : high) = middle;
      }
      weights = Between(weights, corner, (low + high) / 2);
      const auto [found, at] = Answer(weights);
      values = at;
      if (found <= best * (1 + 1e-6)) return std::max(best, found);
      best = found;
    }
    return best;
  }

  // With nothing beside the root: no less than any Solve().
  double AllRemote() const {
    Values values = Fixed();
    for (size_t i = 1; i < tree_.size(); ++i) {
      if (tree_[i].parent == 0) Add(values, OfEdge(tree_[i], 1, 0));
    }
    return *std::max_element(values.begin(), values.end());
  }

 private:
  static void Add(Values& sum, const Values& more) {
    for (size_t i = 0; i < kLimits; ++i) sum[i] += more[i];
  }

  // What holds for the root whatever runs beside it.
  Values Fixed() const {
    Values values = OfNode(tree_[0], 1);
    values[kBytesIn] += terms_.before_in;
    values[kBytesOut] += terms_.before_out;
    return values;
  }

  Values OfNode(const TreeNode& node, double part) const {
    Values values{};
    values[kCompute] = batch_ * node.work * part / terms_.devices;
    const double sum = std::max(0.0, node.parameters * terms_.sum_per_byte - 2 * kRounding);
    values[kSums] = sum * std::max(0.0, part / terms_.share - 1) / terms_.devices;
    return values;
  }

  Values OfEdge(const TreeNode& node, double reader, double part) const {
    Values values{};
    const double remote = batch_ * std::max(0.0, reader - part);
    if (remote == 0) return values;
    values[kBytesIn] = remote * node.activation / terms_.in;
    values[kBytesOut] = remote * node.gradient / terms_.out;
    return values;
  }

  // From the leaves up: the least for each part of the samples that the reader runs on.
  std::pair<double, Values> Answer(const Values& weights) const {
    constexpr size_t kParts = 3;
    std::vector<std::array<Values, kParts>> below(tree_.size());  // By own part.
    for (size_t i = tree_.size(); i-- > 1;) {
      const TreeNode& node = tree_[i];
      for (size_t own = 0; own < kParts; ++own) Add(below[i][own], OfNode(node, parts_[own]));
      for (size_t reader = 0; reader < kParts; ++reader) {
        double least = kInfinity;
        Values chosen{};
        for (size_t own = 0; own < kParts; ++own) {
          Values values = below[i][own];
          Add(values, OfEdge(node, parts_[reader], parts_[own]));
          const double value = Dot(weights, values);
          if (value >= least) continue;
          least = value;
          chosen = values;
        }
        Add(below[node.parent][reader], chosen);
      }
    }
    Values values = Fixed();
    Add(values, below[0][kParts - 1]);
    return {Dot(weights, values), values};
  }

  const double batch_;
  const ProducerTree& tree_;
  const Terms& terms_;
  std::array<double, 3> parts_{};
};

class Joins {
 public:
  Joins(const BoundProblem& problem, const CutRates& cut, bool by_node)
      : problem_(problem), cut_(cut), by_node_(by_node) {
    most_ = std::min<int64_t>(static_cast<int64_t>(cut.in.size()), problem.mini_batch);
    for (int64_t d = 1; d <= problem.mini_batch / d; ++d) {
      if (problem.mini_batch % d != 0) continue;
      divisors_.push_back(d);
      divisors_.push_back(problem.mini_batch / d);
    }
    Groups groups;
    for (int64_t m = 1; m <= most_; ++m) {
      groups.devices += cut.devices[m - 1];
      groups.in += cut.in[m - 1];
      groups.out += cut.out[m - 1];
      groups.share = LargestShare(m);
      groups_.push_back(groups);
    }
  }

  // The bound of a root, or 0 if it is not more than `known`.
  double Of(const ProducerTree& tree, double known, int& programs) const {
    std::vector<std::pair<double, int64_t>> order;
    for (int64_t m = 1; m <= most_; ++m)
      order.emplace_back(Program(problem_, tree, TermsOf(tree, m)).AllRemote(), m);
    std::sort(order.begin(), order.end());
    double least = kInfinity;
    for (const auto& [remote, m] : order) {
      if (remote <= known || --programs < 0) return 0;
      least = std::min(least, Program(problem_, tree, TermsOf(tree, m)).Solve());
      if (least <= known) return 0;
    }
    return least;
  }

  // No less than Of(): with everything in other groups, for one number of groups.
  double AtMost(const ProducerTree& tree) const {
    double least = kInfinity;
    for (int64_t m = 1; m <= most_; m *= 2)
      least = std::min(least, Program(problem_, tree, TermsOf(tree, m)).AllRemote());
    return least;
  }

 private:
  // ns a byte that sums over groups take at least, of which 2 (m - 1) / m pass.
  double PerByte() const {
    return by_node_ ? 1 / cut_.in.front() : 1 / problem_.fastest.bytes_per_nano;
  }

  // The largest part of the samples that one of m groups can have.
  double LargestShare(int64_t m) const {
    if (m == 1) return 1;
    double largest = 0;
    for (int64_t q = 1; q <= cut_.devices.front(); ++q) {
      const int64_t replicas = q + m - 1;
      for (int64_t d : divisors_) {
        if (d < replicas) continue;
        const int64_t share = q * ((d + replicas - 1) / replicas);
        largest = std::max(largest, static_cast<double>(share) / static_cast<double>(d));
      }
    }
    return std::min(largest, 1.0);
  }

  Terms TermsOf(const ProducerTree& tree, int64_t m) const {
    Terms terms;
    static_cast<Groups&>(terms) = groups_[m - 1];
    terms.sum_per_byte = 2 * PerByte();
    const int32_t root = tree[0].node;
    const NodeCost& cost = problem_.costs[root];
    double first_in = problem_.head[root];
    double last_out = problem_.tail[root];
    for (size_t i = 1; i < tree.size(); ++i) {
      const int32_t u = tree[i].node;
      if (tree[i].activation > 0)
        first_in = std::min(first_in, problem_.head[u] + problem_.costs[u].forward);
      if (tree[i].gradient > 0) last_out = std::min(last_out, problem_.WayBack(u));
    }
    const double updated = cost.weight + SumOver(cost.bytes.gradients, m) + cost.update;
    terms.before_in = first_in + cost.forward + cost.input + std::max(updated, problem_.tail[root]);
    terms.before_out = problem_.head[root] + cost.forward + cost.input + last_out;
    return terms;
  }

  double SumOver(Bytes gradients, int64_t m) const {
    const double any = LeastAllReduceTime(gradients, m, problem_.fastest);
    if (!by_node_ || m < 2) return any;
    const auto groups = static_cast<double>(m);
    const double through = 2 * (groups - 1) / groups * static_cast<double>(gradients);
    return std::max(any, through * PerByte() - kRounding);
  }

  const BoundProblem& problem_;
  const CutRates& cut_;
  const bool by_node_;
  int64_t most_ = 1;
  std::vector<int64_t> divisors_;
  std::vector<Groups> groups_;  // By number, from 1 on.
};

// Only what the root itself reads: enough for AtMost().
ProducerTree ReadBy(const BoundProblem& problem, const std::vector<HeldBytes>& first_uses,
                    int32_t root) {
  const size_t degree = problem.graph.dag().Predecessors(root).size();
  return ProducersOf(problem, first_uses, root, static_cast<int32_t>(degree) + 1);
}

}  // namespace

double BoundJoins(const BoundProblem& problem, double known) {
  if (problem.cluster.size() < 2) return 0;
  const CutRates by_device = CutByDevice(problem.cluster);
  const CutRates by_node = CutByNode(problem.cluster);
  std::vector<Joins> cuts;
  cuts.emplace_back(problem, by_device, false);
  if (by_node.in.size() > 1 && by_node.in.size() < by_device.in.size())
    cuts.emplace_back(problem, by_node, true);
  const std::vector<HeldBytes> first_uses = FirstUses(problem);

  double bound = 0;
  int programs = kMostPrograms;
  for (const Joins& cut : cuts) {
    std::vector<std::pair<double, int32_t>> roots;
    for (int32_t v = 0; v < problem.graph.size(); ++v) {
      if (!problem.owned(v)) continue;
      const double most = cut.AtMost(ReadBy(problem, first_uses, v));
      if (most > known) roots.emplace_back(most, v);
    }
    std::sort(roots.begin(), roots.end(), std::greater<>());
    if (roots.size() > kMostRoots) roots.resize(kMostRoots);
    for (const auto& [most, v] : roots) {
      const ProducerTree tree = ProducersOf(problem, first_uses, v, kMostTreeNodes);
      bound = std::max(bound, cut.Of(tree, std::max(known, bound), programs));
    }
  }
  return bound;
}

}  // namespace stagewright
