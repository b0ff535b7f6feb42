// DAPPLE's early backward schedules.
#pragma once

#include <cstdint>

namespace stagewright {

// DAPPLE section 4: in-flight micro-batches of a stage with `depth` stages from itself to the sink
// inclusive: PA min(depth, limit), PB min(2 * depth - 1, limit).
int64_t PaInFlight(int32_t depth, int64_t limit);
int64_t PbInFlight(int32_t depth, int64_t limit);

}  // namespace stagewright
