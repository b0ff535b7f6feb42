// In which parts workers sum the gradients of a reduction: one flat copy at a time, small against
// what a backward pass holds.
#pragma once

#include <vector>

#include "common/base/units.h"
#include "common/graph/graph.h"

namespace stagewright {

// `parameters` cut into parts of one data type each, in order of type and then as given, of up to a
// MiB, or as large as the largest parameter of that type. O(n log n).
std::vector<std::vector<ParameterId>> GradientParts(const Graph& graph,
                                                    const std::vector<ParameterId>& parameters);

// Bytes of the largest of these copies; 0 without parameters.
Bytes LargestGradientCopy(const Graph& graph, const std::vector<ParameterId>& parameters);

}  // namespace stagewright
