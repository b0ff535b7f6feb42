// What the contents of a graph must be before they become one.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/graph/dag.h"
#include "common/graph/graph_data.h"

namespace stagewright {

// INVALID_ARGUMENT, naming the node and field, unless: there is at least one node; names are unique
// and not empty; every index is in range; every executable node has a target and outputs with
// non-negative shapes; costs are non-negative; sizes do not overflow; the loss is a floating
// scalar; layouts fit their shapes; totals read nothing that trains or changes; a state update fits
// its buffer. Cycles are not looked for. O(size).
absl::Status CheckGraphData(const GraphData& data);

// INVALID_ARGUMENT unless the sizes that profiled costs give for neighbours name neighbours of the
// node in `dag`, each once and in ascending order. O(nodes + edges).
absl::Status CheckCostEdges(const GraphData& data, const Dag& dag);

// INVALID_ARGUMENT names the parameter unless the slices of each tensor agree on what it is, have
// its shape along all dimensions but one, and together are all of it, each entry once. A tensor
// that is sliced goes by no other parameter's name. O(n log n).
absl::Status CheckSlices(const std::vector<Parameter>& parameters);

}  // namespace stagewright
