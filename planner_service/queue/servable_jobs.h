// Which waiting jobs others have to leave devices to.
#pragma once

#include <cstdint>

#include "planner_service/queue/queue_state.h"

namespace stagewright {

// How many of the waiting jobs a job of `account` is to leave devices to: those that could start
// with devices that are connected and open to jobs, once those that hold them have ended, or whose
// workers may connect at any moment. The others wait for more devices, or for a larger quota,
// perhaps for ever, and keep nobody from anything meanwhile. One that waits until other jobs of its
// account have ended, for the quota, keeps nobody of another account. O(jobs * log accounts).
int64_t ServableJobs(const QueueState& queue, const QueueRules& rules, const Account& account);

}  // namespace stagewright
