// Operators that work on each part of what they read alone, so that parts need not be joined before
// them: elementwise ones, views, attention by heads.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "common/graph/graph.h"

namespace stagewright {

// A value that comes in `parts` equal parts along dimension `dim`, which is of constant size and
// along which no samples lie.
struct InParts {
  int32_t dim = 0;
  int32_t parts = 0;
  friend bool operator==(const InParts&, const InParts&) = default;
};
// How a value comes; nothing where it is whole.
using PartsOf = std::function<std::optional<InParts>(ValueRef)>;

// How the node's result comes if each part of it is made of one part of everything that it reads in
// parts, and of the whole of the rest; nothing if that is not what the node computes. Elementwise
// operators of a list, softmax along another dimension, products and
// scaled_dot_product_attention of whole heads, transpositions, views that leave the parts apart.
// O(operands).
std::optional<InParts> CarriedParts(const Graph& graph, NodeId node, const PartsOf& parts_of);

// The node with the sizes of one part: what it gives, and those among its arguments.
// REQUIRES: CarriedParts(graph, node, ...) == parts.
Node WithSizesOfPart(const Graph& graph, NodeId node, const InParts& parts);

// The value with the sizes of one part.
TensorMeta MetaOfPart(TensorMeta meta, const InParts& parts);

}  // namespace stagewright
