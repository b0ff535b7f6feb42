#include "planner_service/planners/pipedream/states.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "common/graph/downsets.h"
#include "common/graph/series_parallel.h"

namespace stagewright::pipedream {
namespace {

// Beyond so many layers only one order is made: the others pay for themselves on small models.
constexpr int32_t kMostLayersForOrders = 1500;
// States that are compared with all before them between two polls.
constexpr int32_t kStatesPerPoll = 16;

// Kahn's algorithm; of the ready layers, the one with the least key comes first.
template <typename Key>
std::vector<int32_t> OrderBy(const Dag& dag, Key key) {
  std::vector<int32_t> missing(dag.size());
  std::vector<int32_t> ready;
  for (int32_t v = 0; v < dag.size(); ++v) {
    missing[v] = static_cast<int32_t>(dag.Predecessors(v).size());
    if (missing[v] == 0) ready.push_back(v);
  }
  std::vector<int32_t> order;
  std::vector<bool> done(dag.size(), false);
  while (!ready.empty()) {
    auto best = ready.begin();
    auto least = std::make_pair(key(*best, done), *best);
    for (auto it = std::next(best); it != ready.end(); ++it) {
      const auto own = std::make_pair(key(*it, done), *it);
      if (own >= least) continue;
      least = own;
      best = it;
    }
    const int32_t v = *best;
    ready.erase(best);
    order.push_back(v);
    done[v] = true;
    for (int32_t w : dag.Successors(v)) {
      if (--missing[w] == 0) ready.push_back(w);
    }
  }
  return order;
}

// By level: all branches advance together.
std::vector<int32_t> ByLevel(const Dag& dag) {
  std::vector<int32_t> level(dag.size(), 0);
  for (int32_t v : dag.order()) {
    for (int32_t w : dag.Successors(v)) level[w] = std::max(level[w], level[v] + 1);
  }
  return OrderBy(dag, [&](int32_t v, const auto&) { return level[v]; });
}

// Takes the ready layer after which the least output is still to be read.
std::vector<int32_t> ByFrontier(const Dag& dag, const std::vector<double>& output) {
  return OrderBy(dag, [&](int32_t v, const std::vector<bool>& done) {
    double change = dag.Successors(v).empty() ? 0 : output[v];
    for (int32_t u : dag.Predecessors(v)) {
      const auto readers = dag.Successors(u);
      const bool last =
          std::all_of(readers.begin(), readers.end(), [&](int32_t w) { return w == v || done[w]; });
      if (last) change -= output[u];
    }
    return change;
  });
}

// Depth first over the series-parallel tree with branches reversed, heaviest first, lightest first.
std::vector<int32_t> ByTree(SpTree tree, const std::vector<double>& weight, double sign) {
  std::vector<double> work(tree.vertices.size(), 0);
  for (size_t v = 0; v < tree.vertices.size(); ++v) {
    SpTree::Vertex& vertex = tree.vertices[v];
    if (vertex.kind == SpTree::Kind::kLeaf) work[v] = weight[vertex.leaf];
    for (int32_t child : vertex.children) work[v] += work[child];
    if (vertex.kind != SpTree::Kind::kParallel) continue;
    if (sign == 0) std::reverse(vertex.children.begin(), vertex.children.end());
    std::stable_sort(vertex.children.begin(), vertex.children.end(),
                     [&](int32_t a, int32_t b) { return sign * work[a] < sign * work[b]; });
  }
  return Linearize(tree);
}

std::vector<std::vector<int32_t>> Orders(const Dag& dag, const std::vector<double>& weight,
                                         const std::vector<double>& output,
                                         const SearchContext& context) {
  if (context.Expired() || dag.size() > kMostLayersForOrders) return {dag.order()};
  const SpTree tree = Decompose(dag);
  std::vector<std::vector<int32_t>> orders = {Linearize(tree)};
  if (context.Expired()) return orders;
  orders.push_back(ByTree(tree, weight, 1));
  orders.push_back(ByTree(tree, weight, -1));
  orders.push_back(ByTree(tree, weight, 0));
  orders.push_back(ByLevel(dag));
  orders.push_back(ByFrontier(dag, output));
  orders.push_back(dag.order());
  return orders;
}

using Set = std::vector<uint64_t>;

bool Inside(const Set& smaller, const Set& larger) {
  for (size_t w = 0; w < smaller.size(); ++w) {
    if (smaller[w] & ~larger[w]) return false;
  }
  return true;
}

// Prefixes of the orders, each set once, smaller ones first; with the empty and the full set.
std::vector<Set> SomeDownsets(const std::vector<std::vector<int32_t>>& orders,
                              const std::vector<double>& weight, int32_t most) {
  const auto layers = static_cast<int32_t>(weight.size());
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  const Set empty((layers + 63) / 64, 0);
  std::set<std::pair<int32_t, Set>> found = {{0, empty}};
  for (size_t o = 0; o < orders.size(); ++o) {
    // Each order may add an equal part of what is left.
    const int32_t room =
        (most - 1 - static_cast<int32_t>(found.size())) / static_cast<int32_t>(orders.size() - o);
    if (room <= 0) break;
    Set prefix = empty;
    double progress = 0;
    double next = 0;
    int32_t size = 0;
    for (int32_t v : orders[o]) {
      prefix[v >> 6] |= uint64_t{1} << (v & 63);
      // Half by work and half by number, so that neither heavy nor many light layers lack cuts.
      const double share = 1.0 / layers;
      progress += room * ((total > 0 ? weight[v] / total : share) + share) / 2;
      ++size;
      if (size < layers && room < layers && progress < next) continue;
      next = progress + 1;
      found.emplace(size, prefix);
    }
  }
  std::vector<Set> sets;
  for (const auto& [size, set] : found) sets.push_back(set);
  return sets;
}

}  // namespace

States::States(const Dag& dag, const std::vector<double>& weight, const std::vector<double>& output,
               int32_t most, const SearchContext& context)
    : layers_(dag.size()) {
  const auto all =
      layers_ < most ? AllDownsets(dag, most, [&] { return context.Expired(); }) : std::nullopt;
  complete_ = all.has_value();
  if (complete_) {
    for (int32_t s = 0; s < all->size(); ++s)
      members_.emplace_back((*all)[s].begin(), (*all)[s].end());
  } else {
    members_ = SomeDownsets(Orders(dag, weight, output, context), weight, most);
  }
  context.Spend(work::kStateLayer * int64_t{size()} * layers_);
  bool chain = true;
  for (int32_t s = 1; s < size() && chain; ++s) chain = Inside(members_[s - 1], members_[s]);
  before_.resize(size());
  for (int32_t s = 2; s < size(); ++s) {
    if (!chain && s % kStatesPerPoll == 0 &&
        context.Expired(work::kStatePair * kStatesPerPoll * s * (1 + layers_ / 512)))
      return;
    for (int32_t k = s - 1; k > 0; --k) {
      if (chain || Inside(members_[k], members_[s])) before_[s].push_back(k);
    }
  }
}

std::vector<int32_t> States::Between(int32_t from, int32_t to) const {
  std::vector<int32_t> layers;
  for (int32_t v = 0; v < layers_; ++v) {
    if (Has(to, v) && !Has(from, v)) layers.push_back(v);
  }
  return layers;
}

std::vector<double> States::Sum(const std::vector<double>& values) const {
  std::vector<double> sums(size(), 0);
  for (int32_t s = 1; s < size(); ++s) {
    // From the state before it, whether or not that is inside.
    double sum = sums[s - 1];
    for (size_t w = 0; w < members_[s].size(); ++w) {
      for (uint64_t rest = members_[s][w] ^ members_[s - 1][w]; rest != 0; rest &= rest - 1) {
        const auto bit = static_cast<int32_t>(w * 64 + std::countr_zero(rest));
        sum += Has(s, bit) ? values[bit] : -values[bit];
      }
    }
    sums[s] = sum;
  }
  return sums;
}

std::vector<double> States::Boundary(const Dag& dag, const std::vector<double>& output) const {
  std::vector<double> bytes(size(), 0);
  for (int32_t s = 1; s + 1 < size(); ++s) {
    for (int32_t v = 0; v < layers_; ++v) {
      if (!Has(s, v)) continue;
      const auto successors = dag.Successors(v);
      if (std::any_of(successors.begin(), successors.end(),
                      [&](int32_t w) { return !Has(s, w); })) {
        bytes[s] += output[v];
      }
    }
  }
  return bytes;
}

}  // namespace stagewright::pipedream
