// Whether a file has the weights of a graph.
#pragma once

#include "common/base/status.h"
#include "common/data/safetensors_header.h"
#include "common/graph/graph.h"

namespace stagewright {

// NOT_FOUND or INVALID_ARGUMENT, naming file and tensor, if the file has the parameter, or the
// tensor that it is a slice of, neither under its name nor under an alias, or with another type or
// shape; and what to do, where all names in the file have a prefix that a wrapper of the module
// adds. Constants of capture are in no file.
absl::Status CheckParameter(const Parameter& parameter, const SafetensorsHeader& file);

// CheckParameter of all parameters and buffers of the graph. O(n log n).
absl::Status CheckWeights(const Graph& graph, const SafetensorsHeader& file);

}  // namespace stagewright
