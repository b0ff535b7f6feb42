// Downsets of a DAG: sets that hold every predecessor of their members. A difference of two of
// them, one inside the other, is convex, and every convex set is such a difference; so a pipeline
// of convex stages is a chain of downsets from the empty set to all vertices.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/graph/dag.h"

namespace stagewright {

// A family of downsets, one bit row each. Each but the empty one, which comes first, is an earlier
// one, its parent, and one vertex more.
class VertexSets {
 public:
  explicit VertexSets(int32_t num_vertices) : words_((num_vertices + 63) / 64) {}

  int32_t size() const { return size_; }
  size_t words() const { return words_; }
  std::span<const uint64_t> operator[](int32_t set) const {
    return {rows_.data() + static_cast<size_t>(set) * words_, words_};
  }
  bool Has(int32_t set, int32_t vertex) const {
    return (rows_[static_cast<size_t>(set) * words_ + (vertex >> 6)] >> (vertex & 63)) & 1;
  }
  bool Contains(int32_t larger, int32_t smaller) const {
    const uint64_t* a = rows_.data() + static_cast<size_t>(larger) * words_;
    const uint64_t* b = rows_.data() + static_cast<size_t>(smaller) * words_;
    for (size_t w = 0; w < words_; ++w) {
      if ((b[w] & ~a[w]) != 0) return false;
    }
    return true;
  }
  int32_t parent(int32_t set) const { return parent_[set]; }  // -1 of the empty set.
  int32_t added(int32_t set) const { return added_[set]; }    // To the parent.

  // REQUIRES: as above; a row of words() words.
  void Add(std::span<const uint64_t> row, int32_t parent, int32_t added) {
    rows_.insert(rows_.end(), row.begin(), row.end());
    parent_.push_back(parent);
    added_.push_back(added);
    ++size_;
  }

 private:
  size_t words_;
  int32_t size_ = 0;
  std::vector<uint64_t> rows_;
  std::vector<int32_t> parent_, added_;
};

// All downsets, smaller ones first; nullopt if there are more than `limit`, or `stop` says so,
// which is asked now and then. O(limit * (n + m)) time, limit * n / 8 bytes, whatever the graph.
std::optional<VertexSets> AllDownsets(const Dag& dag, int64_t limit,
                                      const std::function<bool()>& stop = {});

// The n + 1 prefixes of a topological order, the shortest first. O(n^2 / 64).
VertexSets Prefixes(const Dag& dag, const std::vector<int32_t>& order);

}  // namespace stagewright
