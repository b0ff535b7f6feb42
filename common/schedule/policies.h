// Compute orders of schedules that a kFkB schedule per stage cannot express.
//
// Each function takes a strategy whose stages, devices and micro-batch sizes are decided and
// returns the compute orders of its devices, for SetOrders (common/strategy/strategy.h). All work
// on graphs of stages, with replicas and with several stages on a device; stages without a backward
// pass (nothing in or above them trains) get none. Stages of one strategy have equal micro-batches
// here; FAILED_PRECONDITION names the stage otherwise. The orders are those of an execution, so
// they never deadlock: where the rule of a policy would (it was made for chains), a device takes
// the next of its steps that can run.
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

// All micro-batches through one stage of a device before the next stage, forward and backward
// (breadth-first pipeline parallelism, Lamy-Poirier 2023).
absl::StatusOr<std::vector<DeviceOrder>> BreadthFirstOrders(const Graph& graph,
                                                            const Strategy& strategy);

// Zero-bubble schedules (Qi et al. 2024): the backward pass is split, and weight halves fill what
// would be bubbles. H1 keeps, per stage, the in-flight micro-batches of 1F1B, and holds no more
// micro-batches until their weight halves than 1F1B's first stage. V is meant for two stages per
// device, the second placed in reverse order; a device holds as many micro-batches, over its stages
// together, as the longest path has stages. V, and H1 where devices have several stages, take all
// passes as equally long and transfers as free. O(steps * stages per device).
absl::StatusOr<std::vector<DeviceOrder>> ZeroBubbleH1Orders(const Graph& graph,
                                                            const Strategy& strategy);
absl::StatusOr<std::vector<DeviceOrder>> ZeroBubbleVOrders(const Graph& graph,
                                                           const Strategy& strategy);

// DAPPLE section 4: in-flight micro-batches of a stage with `depth` stages from itself to the sink
// inclusive: PA min(depth, limit), PB min(2 * depth - 1, limit).
int64_t PaInFlight(int32_t depth, int64_t limit);
int64_t PbInFlight(int32_t depth, int64_t limit);

}  // namespace stagewright
