// Problem: the chain of downsets {} = I_0 < I_1 < ... < I_m = V, a shape (d, t) for every stage I_i
// - I_{i-1} and the operators that recompute, with the least objective within K devices and M bytes
// (objective.h).
//
// | here               | Piper                                                             |
// |--------------------|-------------------------------------------------------------------|
// | set                | a downset I, the operators before a cut                           |
// | State::devices     | k, devices of the stages behind the cut                           |
// | State::replicas    | s, their data-parallel degrees added up                           |
// | limit              | T, a bound on the objective                                       |
// | PiperStageCosts    | TPS(J - I, t, d, s) and its knapsack over recomputation           |
//
// Recurrence. The original tabulates the least objective over (I, k, s) and takes the minimum over
// all larger downsets and shapes: O(D^2 K^2) stages are priced for D downsets. Here the question is
// turned round. For a bound T,
//
//   F(V) = 0,  F(I) = min over J > I and d, t of F(J) + d t  where  time(J - I, d, t, s) <= T,
//
// the fewest devices behind I, answers whether T can be met, because fewer devices behind a cut are
// never worse: time does not depend on them, and memory grows with s, which without tensor
// parallelism equals k. (With it, states keep the Pareto front of (k, s).) A set counts only if the
// rest still fits: F(I) + ceil(w(I) / T) <= K with w the least device time of what is before the
// cut. Near the optimum hardly any slack is left, so few sets survive and the time window of a
// stage is narrow. Bisection on T ends when it is within 1e-7 of a value that cannot be met.
//
// First every linear order is searched - the chain of its n + 1 prefixes - then, if the lattice has
// at most PiperLimits::downsets sets, all of them, starting from the best chain: often one pass
// proves that the lattice has nothing better.
//
// Complexity: O(log(1 / precision) * P * shapes) for P pairs of surviving sets within a window, at
// most D^2 / 2; O(D (n / 64 + edges that leave a set)) memory.
//
// Deviations from the original (4 to 10: piper.cc):
//  1. Bisection. A bound T is asked for in place of tables over (k, s), as above.
//  2. Linear orders. They are searched beyond the limit on downsets, where the original refuses.
//  3. Exact recomputation. What recomputes within a stage is chosen by branch and bound
//     (recompute.h); the original is greedy.
//
// Reference: Tarnawski, Narayanan, Phanishayee, "Piper: Multidimensional Planner for DNN
// Parallelization", NeurIPS 2021, and its code.
#include "planner_service/planners/piper/solve.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/graph/series_parallel.h"
#include "planner_service/planners/piper/stage_costs.h"

namespace stagewright {
namespace {

// Larger graphs take too long to decompose between two looks at the clock.
constexpr int32_t kMostDecomposed = 1500;

// What can stand behind a cut, and the stage that comes right after it.
struct State {
  int32_t devices = 0;
  int32_t replicas = 0;
  int32_t stages = 0;
  int32_t next_set = -1;
  int32_t next_state = -1;
  PiperStageCosts::Shape shape;
};

// Open states between two polls.
constexpr int64_t kPollEvery = 4096;

class FamilySearch {
 public:
  FamilySearch(const PiperProblem& problem, const VertexSets& sets, const PiperLimits& limits,
               const SearchContext& context, int64_t& priced)
      : problem_(problem),
        sets_(sets),
        limits_(limits),
        context_(context),
        costs_(problem, sets),
        priced_(priced),
        told_priced_(priced) {
    const int32_t most = limits.most_replicas > 0 ? std::min(limits.most_replicas, problem.devices)
                                                  : problem.devices;
    for (int32_t t = 0; t < static_cast<int32_t>(costs_.degrees().size()); ++t) {
      for (int32_t d = 1; d <= most; ++d) {
        if (problem.micro_batches % d != 0) continue;
        if (d * costs_.degrees()[t] <= problem.devices) shapes_.push_back({t, d, 1});
      }
    }
    std::stable_sort(shapes_.begin(), shapes_.end(),
                     [&](const auto& a, const auto& b) { return Devices(a) < Devices(b); });
    for (int32_t s = 0; s < sets.size(); ++s) {
      if (sets.parent(s) < 0) empty_ = s;
      if (sets.parent(s) != s - 1) nested_ = false;
    }
    order_.resize(sets.size());
    std::iota(order_.begin(), order_.end(), 0);
    // Larger sets first, as far as time tells; a set is always after those that hold it.
    std::vector<int32_t> size(sets.size());
    for (int32_t s = 0; s < sets.size(); ++s) {
      size[s] = sets.parent(s) < 0 ? 0 : size[sets.parent(s)] + 1;
    }
    std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
      if (costs_.DeviceTime(a) != costs_.DeviceTime(b)) {
        return costs_.DeviceTime(a) > costs_.DeviceTime(b);
      }
      return size[a] != size[b] ? size[a] > size[b] : a < b;
    });
    for (int32_t s = 0; s < sets.size(); ++s) {
      if (size[s] == problem.dag.size()) full_ = s;
    }
    one_front_ = costs_.degrees().size() == 1 && costs_.degrees()[0] == 1 &&
                 limits.min_stages == 0 && limits.max_stages == 0;
  }

  // A lower bound on every partition's objective.
  double Least() const { return costs_.DeviceTime(full_) / problem_.devices; }

  // Improves on `best` (empty: anything) as far as the precision allows.
  void Improve(PiperAnswer& best) {
    const double infinity = std::numeric_limits<double>::infinity();
    double low = Least();
    double high = best.partition ? best.objective * (1 - kPiperPrecision) : infinity;
    // The first question decides whether there is anything; bisection follows.
    for (double limit = high; limit >= low; limit = (low + high) / 2) {
      auto found = Within(limit);
      if (expired_) break;
      if (!found) {
        low = limit;
        if (limit == infinity) return;
      } else {
        best.objective = PiperObjective(problem_, *found);
        best.partition = std::move(found);
        high = std::min(best.objective, limit);
      }
      if (high - low <= kPiperPrecision * high) return;
    }
    best.expired = expired_;
  }

 private:
  int32_t Devices(const PiperStageCosts::Shape& shape) const {
    return shape.replicas * costs_.degrees()[shape.degree];
  }

  // Tells the context what was done since it was asked last.
  bool Expired() {
    context_.Spend(work::kStageLook * (looked_ - told_looked_) +
                   work::kStagePrice * (priced_ - told_priced_));
    told_looked_ = looked_;
    told_priced_ = priced_;
    expired_ = expired_ || context_.Expired();
    return expired_;
  }

  // Devices without which a stage of this much device time cannot keep the limit.
  static int32_t DevicesFor(double time, double limit) {
    if (!(time > 0)) return 0;
    return static_cast<int32_t>(std::min(std::ceil(time / limit * (1 - 1e-12)), 1e9));
  }

  std::optional<PiperPartition> Within(double limit) {
    states_.assign(sets_.size(), {});
    open_.assign(problem_.devices + 1, {});
    states_[full_].push_back({});
    open_[0].push_back({full_, 0});
    for (int32_t set : order_) {
      if (set == full_) continue;
      if (Expired()) return std::nullopt;
      // What is behind the cut and before it cannot share a device.
      const double time = costs_.DeviceTime(set);
      const int32_t before = set == empty_ ? 0 : std::max(1, DevicesFor(time, limit));
      const int32_t behind = DevicesFor(costs_.DeviceTime(full_) - time, limit);
      if (before + behind > problem_.devices) continue;
      Extend(set, limit);
      if (expired_) return std::nullopt;
      if (set == empty_) continue;
      for (size_t i = 0; i < states_[set].size(); ++i) {
        const int32_t devices = states_[set][i].devices;
        if (devices + before <= problem_.devices) {
          open_[devices].push_back({set, static_cast<int32_t>(i)});
        }
      }
    }
    return Trace();
  }

  struct Open {
    int32_t set;
    int32_t state;
  };

  // The stages that may start at `set`, with every open state behind them.
  void Extend(int32_t set, double limit) {
    const double time = costs_.DeviceTime(set);
    const int32_t before = set == empty_ ? 0 : std::max(1, DevicesFor(time, limit));
    int32_t most = problem_.devices - before;  // Devices behind the cut.
    const int32_t least = DevicesFor(costs_.DeviceTime(full_) - time, limit);
    for (int32_t behind = 0; behind < most && least <= most; ++behind) {
      const std::vector<Open>& open = open_[behind];
      const double reach = time + limit * (most - behind) * (1 + 1e-12);
      const auto first = std::partition_point(open.begin(), open.end(), [&](const Open& o) {
        return costs_.DeviceTime(o.set) > reach;
      });
      for (auto it = first; it != open.end(); ++it) {
        if (++looked_ % kPollEvery == 0 && Expired()) return;
        if (!nested_ && !sets_.Contains(it->set, set)) continue;
        ++priced_;
        const int32_t fewest = Price(set, *it, limit, most - behind);
        // With one front only fewer devices than found are of interest.
        if (one_front_ && fewest > 0) most = std::min(most, behind + fewest - 1);
        if (behind >= most || least > most) break;
      }
    }
  }

  // Adds the states of stages from `set` to an open state's set; the fewest devices of one, 0 if
  // there is none within `most` devices.
  int32_t Price(int32_t set, const Open& open, double limit, int32_t most) {
    const State& behind = states_[open.set][open.state];
    const int32_t stages = behind.stages + 1;
    if (limits_.max_stages > 0 && stages > limits_.max_stages) return 0;
    const double time = costs_.DeviceTime(open.set) - costs_.DeviceTime(set);
    const int32_t least = std::max(1, DevicesFor(time, limit));
    int32_t fewest = 0;
    for (PiperStageCosts::Shape shape : shapes_) {
      const int32_t devices = Devices(shape);
      if (devices < least) continue;
      if (devices > most) break;
      const int32_t replicas = behind.replicas + shape.replicas;
      shape.micro_batches_in_flight = (replicas + shape.replicas - 1) / shape.replicas;
      if (!costs_.Within(set, open.set, shape, limit)) continue;
      Keep(states_[set], {behind.devices + devices, replicas, stages, open.set, open.state, shape});
      if (fewest == 0) fewest = devices;
      if (one_front_) break;
    }
    return fewest;
  }

  // Stages count towards a number that is asked for, so states that differ in them are kept apart.
  void Keep(std::vector<State>& front, const State& state) const {
    const bool counted = limits_.min_stages > 0 || limits_.max_stages > 0;
    const auto covers = [&](const State& a, const State& b) {
      return a.devices <= b.devices && a.replicas <= b.replicas &&
             (!counted || a.stages == b.stages);
    };
    for (const State& other : front) {
      if (covers(other, state)) return;
    }
    // States behind open cuts are final, so nothing refers to those that go.
    std::erase_if(front, [&](const State& other) { return covers(state, other); });
    front.push_back(state);
  }

  std::optional<PiperPartition> Trace() const {
    const State* state = nullptr;
    for (const State& candidate : states_[empty_]) {
      if (candidate.stages < limits_.min_stages) continue;
      if (state == nullptr || candidate.devices < state->devices) state = &candidate;
    }
    if (state == nullptr) return std::nullopt;
    PiperPartition partition;
    for (int32_t set = empty_; set != full_;) {
      partition.push_back(costs_.Build(set, state->next_set, state->shape));
      set = state->next_set;
      state = &states_[set][state->next_state];
    }
    return partition;
  }

  const PiperProblem& problem_;
  const VertexSets& sets_;
  const PiperLimits& limits_;
  const SearchContext& context_;
  const PiperStageCosts costs_;
  int64_t& priced_;
  int64_t told_priced_;  // As told_looked_.
  // By devices; micro_batches_in_flight is filled in later.
  std::vector<PiperStageCosts::Shape> shapes_;
  int32_t empty_ = 0;
  int32_t full_ = 0;
  bool nested_ = true;  // Each set holds all before it: the prefixes of an order.
  bool one_front_ = true;
  bool expired_ = false;
  int64_t looked_ = 0;       // Open states looked at.
  int64_t told_looked_ = 0;  // The context knows of so many.
  std::vector<int32_t> order_;
  std::vector<std::vector<State>> states_;  // By set.
  std::vector<std::vector<Open>> open_;     // By devices behind; device time falls along each.
};

// Topological orders worth a search of their own.
std::vector<std::vector<int32_t>> Orders(const Dag& dag) {
  std::vector<std::vector<int32_t>> orders = {dag.order()};
  if (dag.size() > kMostDecomposed) return orders;
  std::vector<int32_t> by_branch = Linearize(Decompose(dag));
  if (by_branch != orders[0]) orders.push_back(std::move(by_branch));
  return orders;
}

}  // namespace

PiperAnswer SolvePiper(const PiperProblem& problem, const PiperLimits& limits,
                       const SearchContext& context) {
  PiperAnswer answer;
  for (const std::vector<int32_t>& order : Orders(problem.dag)) {
    if (context.Expired()) break;
    const VertexSets chain = Prefixes(problem.dag, order);
    FamilySearch(problem, chain, limits, context, answer.states).Improve(answer);
  }
  const auto lattice = AllDownsets(problem.dag, limits.downsets, [&] { return context.Expired(); });
  if (lattice && !context.Expired()) {
    FamilySearch search(problem, *lattice, limits, context, answer.states);
    search.Improve(answer);
    answer.lattice = !answer.expired;
  }
  answer.expired = answer.expired || context.Expired();
  return answer;
}

}  // namespace stagewright
