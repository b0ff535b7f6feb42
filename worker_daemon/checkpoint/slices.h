// The tensors of which a graph has slices, where operators are cut in parallel parts.
#pragma once

#include <string>
#include <vector>

#include "common/graph/graph.h"

namespace stagewright {

struct SlicedTensor {
  std::vector<std::string> names;  // The tensor's name, then its aliases.
  int32_t dim = 0;
  std::vector<std::string> slices;  // Names of the parameters, in order along `dim`.
};

// By name. O(n log n).
std::vector<SlicedTensor> SlicedTensors(const Graph& graph);

}  // namespace stagewright
