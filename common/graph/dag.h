// A directed acyclic graph over dense indices [0, n): the shape that the operator graph, its
// coarsening and the stage graph share. Immutable, compressed adjacency; neighbours are sorted and
// unique.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

class Dag {
 public:
  using Edge = std::pair<int32_t, int32_t>;  // (from, to)

  Dag() = default;

  // Builds from any edge list; parallel edges are merged. INVALID_ARGUMENT if an index is out of
  // range, an edge is a self-loop, or there is a cycle (the message lists the cycle's vertices).
  // O(n + m log m).
  static absl::StatusOr<Dag> Create(int32_t num_vertices, std::vector<Edge> edges);

  int32_t size() const { return static_cast<int32_t>(order_.size()); }
  std::span<const int32_t> Successors(int32_t v) const { return Row(out_begin_, out_, v); }
  std::span<const int32_t> Predecessors(int32_t v) const { return Row(in_begin_, in_, v); }
  std::vector<Edge> Edges() const;

  // Topological order; among ready vertices the smallest index comes first.
  const std::vector<int32_t>& order() const { return order_; }

  // The vertices of a cycle in order, or empty if `edges` has none.
  static std::vector<int32_t> FindCycle(int32_t num_vertices, const std::vector<Edge>& edges);

 private:
  static std::span<const int32_t> Row(const std::vector<int32_t>& begin,
                                      const std::vector<int32_t>& items, int32_t v) {
    return {items.data() + begin[v], items.data() + begin[v + 1]};
  }

  std::vector<int32_t> out_begin_, out_, in_begin_, in_, order_;
};

// Which vertices each vertex reaches: one bit row per vertex. O(n m / 64) time, n^2 / 8 bytes.
class Reachability {
 public:
  explicit Reachability(const Dag& dag);

  // True if there is a path of at least one edge from `from` to `to`.
  bool Reaches(int32_t from, int32_t to) const { return (rows_[Word(from, to)] >> (to & 63)) & 1; }

 private:
  size_t Word(int32_t from, int32_t to) const {
    return static_cast<size_t>(from) * words_ + (to >> 6);
  }
  size_t words_;
  std::vector<uint64_t> rows_;
};

// The fewest edges with the same reachability. O(n m).
Dag TransitiveReduction(const Dag& dag, const Reachability& reach);

// The vertices on the longest path (its number of vertices); 0 for an empty graph. O(n + m).
int32_t Depth(const Dag& dag);

// True if no path between two members leaves the set (GraphPipe section 3, condition C1).
// `member[v]` marks the set. O(n + m).
bool IsConvex(const Dag& dag, const std::vector<bool>& member);

// The quotient by `group[v]` in [0, num_groups), -1 to leave a vertex out: an edge per pair of
// different groups with an edge between them. INVALID_ARGUMENT if the quotient has a cycle.
absl::StatusOr<Dag> Quotient(const Dag& dag, const std::vector<int32_t>& group, int32_t num_groups);

}  // namespace stagewright
