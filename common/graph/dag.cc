#include "common/graph/dag.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace stagewright {
namespace {

// Fills `begin` and `items` with the second ends of `edges`, grouped by first end. `edges` is
// sorted.
void Compress(int32_t n, const std::vector<Dag::Edge>& edges, std::vector<int32_t>& begin,
              std::vector<int32_t>& items) {
  begin.assign(n + 1, 0);
  items.reserve(edges.size());
  for (const auto& [from, to] : edges) {
    ++begin[from + 1];
    items.push_back(to);
  }
  for (int32_t v = 0; v < n; ++v) begin[v + 1] += begin[v];
}

}  // namespace

absl::StatusOr<Dag> Dag::Create(int32_t num_vertices, std::vector<Edge> edges) {
  for (const auto& [from, to] : edges) {
    if (from < 0 || from >= num_vertices || to < 0 || to >= num_vertices) {
      return absl::InvalidArgumentError(
          absl::StrCat("edge ", from, " -> ", to, " is outside the ", num_vertices, " vertices"));
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());

  Dag dag;
  Compress(num_vertices, edges, dag.out_begin_, dag.out_);
  std::vector<Edge> reversed;
  reversed.reserve(edges.size());
  for (const auto& [from, to] : edges) reversed.emplace_back(to, from);
  std::sort(reversed.begin(), reversed.end());
  Compress(num_vertices, reversed, dag.in_begin_, dag.in_);

  std::vector<int32_t> missing(num_vertices);
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ready;
  for (int32_t v = 0; v < num_vertices; ++v) {
    missing[v] = static_cast<int32_t>(dag.Predecessors(v).size());
    if (missing[v] == 0) ready.push(v);
  }
  dag.order_.reserve(num_vertices);
  while (!ready.empty()) {
    const int32_t v = ready.top();
    ready.pop();
    dag.order_.push_back(v);
    for (int32_t w : dag.Successors(v)) {
      if (--missing[w] == 0) ready.push(w);
    }
  }
  if (static_cast<int32_t>(dag.order_.size()) != num_vertices) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cycle through vertices ", absl::StrJoin(FindCycle(num_vertices, edges), " -> ")));
  }
  return dag;
}

std::vector<Dag::Edge> Dag::Edges() const {
  std::vector<Edge> edges;
  edges.reserve(out_.size());
  for (int32_t v = 0; v < size(); ++v) {
    for (int32_t w : Successors(v)) edges.emplace_back(v, w);
  }
  return edges;
}

std::vector<int32_t> Dag::FindCycle(int32_t num_vertices, const std::vector<Edge>& edges) {
  std::vector<std::vector<int32_t>> out(num_vertices);
  for (const auto& [from, to] : edges) out[from].push_back(to);
  enum : char { kNew, kOpen, kDone };
  std::vector<char> state(num_vertices, kNew);
  for (int32_t root = 0; root < num_vertices; ++root) {
    if (state[root] != kNew) continue;
    std::vector<std::pair<int32_t, size_t>> path = {{root, 0}};
    state[root] = kOpen;
    while (!path.empty()) {
      auto& [v, next] = path.back();
      if (next == out[v].size()) {
        state[v] = kDone;
        path.pop_back();
        continue;
      }
      const int32_t w = out[v][next++];
      if (state[w] == kOpen) {
        std::vector<int32_t> cycle;
        auto it = std::find_if(path.begin(), path.end(),
                               [w](const auto& entry) { return entry.first == w; });
        for (; it != path.end(); ++it) cycle.push_back(it->first);
        cycle.push_back(w);
        return cycle;
      }
      if (state[w] == kNew) {
        state[w] = kOpen;
        path.emplace_back(w, 0);
      }
    }
  }
  return {};
}

Reachability::Reachability(const Dag& dag)
    : words_((static_cast<size_t>(dag.size()) + 63) / 64),
      rows_(words_ * static_cast<size_t>(dag.size()), 0) {
  for (auto it = dag.order().rbegin(); it != dag.order().rend(); ++it) {
    uint64_t* row = rows_.data() + static_cast<size_t>(*it) * words_;
    for (int32_t w : dag.Successors(*it)) {
      const uint64_t* other = rows_.data() + static_cast<size_t>(w) * words_;
      for (size_t i = 0; i < words_; ++i) row[i] |= other[i];
      row[w >> 6] |= uint64_t{1} << (w & 63);
    }
  }
}

Dag TransitiveReduction(const Dag& dag, const Reachability& reach) {
  std::vector<Dag::Edge> kept;
  for (const auto& [from, to] : dag.Edges()) {
    const auto successors = dag.Successors(from);
    const bool implied =
        std::any_of(successors.begin(), successors.end(),
                    [&, target = to](int32_t w) { return reach.Reaches(w, target); });
    if (!implied) kept.emplace_back(from, to);
  }
  auto reduced = Dag::Create(dag.size(), std::move(kept));
  CHECK(reduced.ok());
  return *std::move(reduced);
}

int32_t Depth(const Dag& dag) {
  std::vector<int32_t> depth(dag.size(), 1);
  int32_t deepest = 0;
  for (int32_t v : dag.order()) {
    for (int32_t u : dag.Predecessors(v)) depth[v] = std::max(depth[v], depth[u] + 1);
    deepest = std::max(deepest, depth[v]);
  }
  return deepest;
}

bool IsConvex(const Dag& dag, const std::vector<bool>& member) {
  // Vertices reached from a member by a path through a non-member.
  std::vector<bool> left_the_set(dag.size(), false);
  for (int32_t v : dag.order()) {
    for (int32_t u : dag.Predecessors(v)) {
      if (left_the_set[u] || (member[u] && !member[v])) left_the_set[v] = true;
    }
    if (member[v] && left_the_set[v]) return false;
  }
  return true;
}

absl::StatusOr<Dag> Quotient(const Dag& dag, const std::vector<int32_t>& group,
                             int32_t num_groups) {
  std::vector<Dag::Edge> edges;
  for (const auto& [from, to] : dag.Edges()) {
    if (group[from] >= 0 && group[to] >= 0 && group[from] != group[to])
      edges.emplace_back(group[from], group[to]);
  }
  return Dag::Create(num_groups, std::move(edges));
}

}  // namespace stagewright
