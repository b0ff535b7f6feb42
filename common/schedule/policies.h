// Compute orders of schedules that a kFkB schedule per stage cannot express.
//
// Each function takes a strategy whose stages, devices and micro-batch sizes are decided and
// returns the compute orders of its devices, for Strategy::orders. All work on graphs of stages;
// stages without a backward pass (nothing in or above them trains) get none. Stages of one strategy
// have equal micro-batches here; FAILED_PRECONDITION names the stage otherwise.
//
// What needs no orders: GPipe is in_flight = mini_batch, 1F1B is AssignInFlight with k = 1, kFkB
// with k > 1, DAPPLE's early backward is PaInFlight / PbInFlight.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/strategy/strategy.h"

namespace stagewright {

// Pfeife's schedule space (section 4, appendix B.2), B being the number of micro-batches: a device
// holds `loops` (N_l) stages, runs `loop_batch` (B_l) micro-batches through one before it turns to
// the next, and at most `in_flight` (B_f) micro-batches are in flight per device before its first
// backward pass. With `prefetch`, a device runs as many forwards ahead as the critical path of the
// dependency graph leaves it idle for.
struct LoopedSchedule {
  int32_t loops = 1;
  int64_t loop_batch = 1;
  int64_t in_flight = 1;
  bool prefetch = false;
};
absl::StatusOr<std::vector<DeviceOrder>> LoopedOrders(const Graph& graph, const Strategy& strategy,
                                                      const LoopedSchedule& schedule);

// All micro-batches through one stage of a device before the next stage, forward and backward
// (breadth-first pipeline parallelism, Lamy-Poirier 2023).
absl::StatusOr<std::vector<DeviceOrder>> BreadthFirstOrders(const Graph& graph,
                                                            const Strategy& strategy);

// Zero-bubble schedules (Qi et al. 2024): the backward pass is split and weight gradients fill what
// would be bubbles. H1 keeps the in-flight micro-batches of 1F1B. V has two stages per device, the
// second placed in reverse order.
absl::StatusOr<std::vector<DeviceOrder>> ZeroBubbleH1Orders(const Graph& graph,
                                                            const Strategy& strategy);
absl::StatusOr<std::vector<DeviceOrder>> ZeroBubbleVOrders(const Graph& graph,
                                                           const Strategy& strategy);

// DAPPLE section 4: in-flight micro-batches of a stage with `depth` stages from itself to the sink
// inclusive: PA min(depth, limit), PB min(2 * depth - 1, limit).
int64_t PaInFlight(int32_t depth, int64_t limit);
int64_t PbInFlight(int32_t depth, int64_t limit);

}  // namespace stagewright
