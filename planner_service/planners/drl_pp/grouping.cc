#include "planner_service/planners/drl_pp/grouping.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "common/base/check.h"

namespace stagewright {
namespace {

// The graph while it is contracted: a group is named by one of its vertices.
class Contraction {
 public:
  Contraction(const Dag& dag, const std::vector<double>& weight) : weight_(weight) {
    const auto n = static_cast<size_t>(dag.size());
    name_.resize(n);
    std::iota(name_.begin(), name_.end(), 0);
    in_.resize(n);
    out_.resize(n);
    for (const auto& [from, to] : dag.Edges()) {
      out_[from].insert(to);
      in_[to].insert(from);
    }
    for (const auto& [from, to] : dag.Edges()) Offer(from, to);
    groups_ = dag.size();
  }

  void Run(int32_t most) {
    while (groups_ > most && !queue_.empty()) {
      const auto [weight, from, to] = *queue_.begin();
      queue_.erase(queue_.begin());
      if (!in_[to].contains(from) || weight != weight_[from] + weight_[to]) continue;
      if (out_[from].size() == 1 || in_[to].size() == 1) Join(from, to);
    }
  }

  // The group of every vertex, as a name.
  std::vector<int32_t> Names() {
    for (size_t v = 0; v < name_.size(); ++v) name_[v] = Find(static_cast<int32_t>(v));
    return name_;
  }

 private:
  void Offer(int32_t from, int32_t to) {
    if (out_[from].size() == 1 || in_[to].size() == 1) {
      queue_.insert({weight_[from] + weight_[to], from, to});
    }
  }

  int32_t Find(int32_t v) {
    while (name_[v] != v) v = name_[v] = name_[name_[v]];
    return v;
  }

  // `to` becomes part of `from`.
  void Join(int32_t from, int32_t to) {
    name_[to] = from;
    --groups_;
    weight_[from] += weight_[to];
    out_[from].erase(to);
    in_[to].erase(from);
    for (int32_t next : out_[to]) {
      in_[next].erase(to);
      in_[next].insert(from);
      out_[from].insert(next);
    }
    for (int32_t before : in_[to]) {
      out_[before].erase(to);
      out_[before].insert(from);
      in_[from].insert(before);
    }
    out_[to].clear();
    in_[to].clear();
    for (int32_t next : out_[from]) Offer(from, next);
    for (int32_t before : in_[from]) Offer(before, from);
  }

  std::vector<double> weight_;
  std::vector<int32_t> name_;
  std::vector<std::set<int32_t>> in_, out_;
  std::set<std::tuple<double, int32_t, int32_t>> queue_;  // Entries may be out of date.
  int32_t groups_ = 0;
};

// Names of groups -> [0, groups), by their first vertex.
std::vector<int32_t> Renumber(const std::vector<int32_t>& names, int32_t& groups) {
  std::vector<int32_t> number(names.size(), -1);
  std::vector<int32_t> result;
  groups = 0;
  for (int32_t name : names) {
    if (number[name] < 0) number[name] = groups++;
    result.push_back(number[name]);
  }
  return result;
}

// Intervals of the topological order with about equal weight.
std::vector<int32_t> Intervals(const Dag& dag, const std::vector<double>& weight, int32_t most) {
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  std::vector<int32_t> interval(weight.size());
  double sum = 0;
  for (size_t i = 0; i < dag.order().size(); ++i) {
    const int32_t v = dag.order()[i];
    const double share =
        total > 0 ? sum / total : static_cast<double>(i) / static_cast<double>(dag.order().size());
    interval[v] = std::min(static_cast<int32_t>(share * most), most - 1);
    sum += weight[v];
  }
  return interval;
}

}  // namespace

Grouping GroupOperators(const Dag& dag, const std::vector<double>& weight, int32_t most) {
  CHECK(most >= 1 && weight.size() == static_cast<size_t>(dag.size()));
  Contraction contraction(dag, weight);
  contraction.Run(most);
  int32_t groups = 0;
  std::vector<int32_t> group = Renumber(contraction.Names(), groups);
  Dag quotient = Quotient(dag, group, groups).value();
  if (groups > most) {
    std::vector<double> heavy(groups, 0);
    for (size_t v = 0; v < group.size(); ++v) heavy[group[v]] += weight[v];
    const std::vector<int32_t> interval = Intervals(quotient, heavy, most);
    for (int32_t& g : group) g = interval[g];
    group = Renumber(group, groups);
    quotient = Quotient(dag, group, groups).value();
  }
  Grouping result{std::vector<std::vector<int32_t>>(groups), std::move(quotient)};
  for (size_t v = 0; v < group.size(); ++v) {
    result.groups[group[v]].push_back(static_cast<int32_t>(v));
  }
  return result;
}

}  // namespace stagewright
