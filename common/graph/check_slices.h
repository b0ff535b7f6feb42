// The invariants of parameters that are slices of stored tensors.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/graph/graph_data.h"

namespace stagewright {

// INVALID_ARGUMENT names the parameter unless the slices of each tensor agree on what it is, have
// its shape along all dimensions but one, and together are all of it, each entry once. A tensor
// that is sliced goes by no other parameter's name. O(n log n).
absl::Status CheckSlices(const std::vector<Parameter>& parameters);

}  // namespace stagewright
