// Whether the explicit compute orders of a strategy are complete and in order.
#pragma once

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/strategy/strategy.h"

namespace stagewright {

// The part of CheckStrategy about Strategy::orders. FAILED_PRECONDITION, naming device, step and
// rule, unless there are none or: every device in use has one order, by device id; on each device
// each of its stages runs every micro-batch forward once, again if it recomputes, then backward
// (whole or, everywhere on the stage, in two halves) if it has a backward pass, each pass in order
// of the micro-batches; and `in_flight` is what SetOrders would write. REQUIRES: ids of stages are
// in range and micro-batches divide the mini-batch. O(steps).
absl::Status CheckOrders(const Graph& graph, const Strategy& strategy);

}  // namespace stagewright
