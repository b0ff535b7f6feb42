// Size of what one node hands to another.
#pragma once

#include "common/base/units.h"
#include "common/graph/graph.h"
#include "common/training/autocast.h"

namespace stagewright {

// Bytes of one value, in the type in which it is sent, per sample when `samples` samples run at
// once, rounded up. A planning-only node's value is its profiled activation (its largest edge); a
// value without a batch dimension in front is shared out among the samples.
Bytes ValueBytesPerSample(const MessageTypes& types, ValueRef value, int64_t samples);

// Bytes that `to` reads from `from` per profiled micro-batch: the edge's own where the profile
// tells a producer's edges apart, else the whole activation. REQUIRES: planning-only, joined by an
// edge.
Bytes ProfiledEdgeBytes(const Graph& graph, NodeId from, NodeId to);

}  // namespace stagewright
