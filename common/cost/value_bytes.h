// Size of what one node hands to another.
#pragma once

#include "common/base/units.h"
#include "common/graph/graph.h"

namespace stagewright {

// Bytes of one value per sample when `samples` samples run at once, rounded up. A planning-only
// node's value is its profiled activation; a value without a batch dimension in front is shared out
// among the samples.
Bytes ValueBytesPerSample(const Graph& graph, ValueRef value, int64_t samples);

}  // namespace stagewright
