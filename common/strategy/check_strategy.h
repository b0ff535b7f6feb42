// Whether a strategy is one (GraphPipe section 3).
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/strategy/strategy.h"
#include "common/topology/cluster.h"

namespace stagewright {

// The most shares of micro-batches, and transfers of them along edges, that a strategy may have: a
// program has a few actions for each of them. An eighth of that for asynchronous strategies.
inline constexpr int64_t kMostPieces = int64_t{1} << 22;

// Conditions C1 to C4 (GraphPipe section 3) and sanity of every field. FAILED_PRECONDITION names
// the condition, stage and node or device that breaks it. C3 is relaxed as documented in
// docs/planners/graphpipe.md: device sets are disjoint unless stages deliberately share a device,
// and a device may stay idle.
absl::Status CheckStrategy(const Graph& graph, const Cluster& cluster, const Strategy& strategy);

// The same before there is a cluster: devices are numbers below `devices`.
absl::Status CheckStrategy(const Graph& graph, int32_t devices, const Strategy& strategy);

}  // namespace stagewright
