// Which integers an input may hold: rows of the table of an embedding, or classes of a loss, as far
// as that follows from operators that pass elements on unchanged (views, slices, copies, joining,
// adding a constant) between the input and the operator that looks things up by them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "common/graph/graph.h"

namespace stagewright {

// Entries [begin, end) of a dimension.
struct Extent {
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
  friend bool operator==(const Extent&, const Extent&) = default;
};

struct IndexBounds {
  InputId input;
  NodeId node;  // The node that takes them.
  // Both are allowed.
  int64_t least = 0, most = 0;
  std::optional<int64_t> ignored;  // Allowed, too: a loss leaves such targets out.
  std::vector<Extent> box;         // By dimension of the input: what of it gets there.
};

// All that are known, by node. Entries that may be changed on their way have none. O(nodes).
std::vector<IndexBounds> FindIndexBounds(const Graph& graph);

}  // namespace stagewright
