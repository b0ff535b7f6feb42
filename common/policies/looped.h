// Looped schedules: groups of micro-batches go through all stages of a device before the next
// group.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/strategy/strategy.h"

namespace stagewright {

// Pfeife's looped 1F1B (sections 3.4 and B.2). B is the number of micro-batches, N_l the number of
// stages that a device has, i the number of stages on the longest path from the device's last stage
// to a sink, itself included (on a chain: 1 on the last device, |D| on the first). A device runs
// groups of B_l micro-batches forwards, each group through all of its stages before the next one,
// and backwards in the same way with its stages reversed. It runs (N_l - 1) * B_l + i + B_f
// forwards, then backwards and forwards in turn, then the remaining backwards.
struct LoopedSchedule {
  int64_t loop_batch = 1;         // B_l, at least 1; what exceeds B counts as B.
  std::vector<int64_t> prefetch;  // B_f of each device in use, by device id. Empty: 0 everywhere.
};
absl::StatusOr<std::vector<DeviceOrder>> LoopedOrders(const Graph& graph, const Strategy& strategy,
                                                      const LoopedSchedule& schedule);

}  // namespace stagewright
