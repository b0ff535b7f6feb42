// How many micro-batches a stage can have in flight.
#pragma once

#include <cstdint>

#include "common/base/units.h"
#include "planner_service/models/stage_oracle.h"

namespace stagewright {

// The most micro-batches of the stage [begin, end) that may be between forward and backward pass
// for it to fit into `memory`, by StageOracle::Memory of the flow (whose `micro_batches_in_flight`
// is not read); at most flow.micro_batches, 0 if not even one fits. O(log micro-batches) questions.
int64_t FittingInFlight(const StageOracle& oracle, int32_t begin, int32_t end,
                        const StageOracle::Flow& flow, Bytes memory);

}  // namespace stagewright
