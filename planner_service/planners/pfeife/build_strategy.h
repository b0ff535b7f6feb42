// From cuts and a shape to a strategy with explicit compute orders.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "planner_service/planner/planner.h"
#include "planner_service/planners/pfeife/chain_model.h"
#include "planner_service/planners/pfeife/looped_shape.h"

namespace stagewright::pfeife {

// Stage s is slice s on devices[s % D]. The orders are those of LoopedOrders with the shape's
// warm-ups; a pipeline that they equal 1F1B for carries them all the same. Errors as LoopedOrders.
absl::StatusOr<Strategy> BuildStrategy(const ChainModel& model, const std::vector<int32_t>& cuts,
                                       const std::vector<int32_t>& devices,
                                       const LoopedShape& shape, StrategyKind kind);

}  // namespace stagewright::pfeife
