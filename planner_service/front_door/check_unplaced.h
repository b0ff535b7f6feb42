// What the front door holds against the question of a job, which gets its devices later: what is
// refused here would be refused on any cluster, so whoever asks need not wait to be told.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "planner_service/front_door/front_door.h"

namespace stagewright {

// INVALID_ARGUMENT, or the planner's NOT_FOUND, names the field, for programs, too
// (error_details.h): the mini-batch, an option, operators to cut, a plan by hand, or the strategy
// that is `given` instead of planning (null: none; then the options do not matter). `devices` is
// how many there will be; 0: any number. What depends on the devices is left to SolvePlan and
// JudgeStrategy: names, memory, measured costs, and whether programs of more than 65,536 passes
// deadlock. REQUIRES: there is a graph; no cluster is looked at.
//
// Says whether the plan will be an asynchronous one.
absl::StatusOr<bool> CheckUnplaced(const PlanRequest& request, const Strategy* given,
                                   int32_t devices);

}  // namespace stagewright
