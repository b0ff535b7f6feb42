// How long actions took in a run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/program/program.h"
#include "common/program/trace.h"
#include "planner_service/simulator/durations.h"

namespace stagewright {

// Durations measured in one step of a trace. A transfer lasts from the moment both ends were ready
// to the end of its receive; a collective from its last start to its last end. A mark was reached
// when the first sum that waits for it started, or with the end of its pass.
// FAILED_PRECONDITION if an action of the body is missing (names device, step and action), or if
// the program is asynchronous and not unrolled.
absl::StatusOr<std::unique_ptr<Durations>> MakeMeasuredDurations(
    const Program& program, const std::vector<TraceEvent>& trace, int32_t step);

}  // namespace stagewright
