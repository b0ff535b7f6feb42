// Nodes that stages may compute for themselves instead of being sent what they make: masks,
// position ids, cheap work on the inputs.
#pragma once

#include <vector>

#include "common/base/ids.h"
#include "common/graph/graph.h"

namespace stagewright {

// Whether each node is one: no trainable parameter, no state and no node that is none in its past,
// and constant or else no heavier than `light`. None is where all would be. `weight` as Coarsen's.
// O(nodes + reads).
std::vector<bool> SetAside(const Graph& graph, const std::vector<double>& weight, double light);

// All that may be, whatever nodes weigh, in topological order.
std::vector<NodeId> MayBeSetAside(const Graph& graph);

// Those of `shared`, which are in topological order, that `nodes` read, directly or through others
// of them. O(nodes of the graph + reads).
std::vector<NodeId> SharedInto(const Graph& graph, const std::vector<NodeId>& shared,
                               const std::vector<NodeId>& nodes);

}  // namespace stagewright
