// Linear layers that are several in one: a joint projection of queries, keys and values, a gate and
// what it gates. The parts that attention by heads needs lie scattered over their features, so that
// they are cut into these layers first.
#pragma once

#include <cstdint>

#include "common/graph/graph.h"

namespace stagewright {

// How many layers of equal size the node is, each of which can be cut in `parts`; 1 if it is one.
// It is so many if all its readers take them apart (taken.h), directly or through operators that
// parts go through, and no other node has the same matrix. REQUIRES: CutOf accepts the node. O(size
// of the graph).
int32_t JointLayers(const Graph& graph, NodeId node, int32_t parts);

}  // namespace stagewright
