// Operators that take single parts of what comes in parts, as those that part a joint projection of
// queries, keys and values: they need nothing joined.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/graph/graph.h"
#include "common/rewrite/carried.h"

namespace stagewright {

// Which part of its first argument each output of the node is; nothing if that is not what it does.
// split, split_with_sizes and chunk into the parts, a slice that is one; where the parts have the
// size 1, unbind, and select of one. O(outputs).
std::optional<std::vector<int32_t>> TakenParts(const Graph& graph, NodeId node,
                                               const PartsOf& parts_of);

// What gives the node's output from the part that it is: select without its dimension, else the
// part as it is. REQUIRES: TakenParts(graph, node, ...) has the output.
Node TakenFrom(const Graph& graph, NodeId node, int32_t output, const InParts& read, NodeId part);

}  // namespace stagewright
