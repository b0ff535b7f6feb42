// Which waiting jobs others have to leave devices to.
#pragma once

#include <cstdint>

#include "planner_service/queue/queue_state.h"

namespace stagewright {

// How many of the waiting jobs could start with devices that are connected and open to jobs, once
// those that hold them have ended, or whose workers may connect at any moment. The others wait for
// more devices, or for a larger quota, perhaps for ever, and keep nobody from anything meanwhile.
// O(jobs).
int64_t ServableJobs(const QueueState& queue, const QueueRules& rules);

}  // namespace stagewright
