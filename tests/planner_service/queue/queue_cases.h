// Jobs and devices for tests of the queue.
#pragma once

#include <cstdint>
#include <string>

#include "planner_service/queue/place_jobs.h"
#include "planner_service/queue/queue_state.h"
#include "tests/support/random.h"

namespace stagewright::testing {

// In short: jobs that wait for a number of devices or hold it, of the owner "ann".
WaitingJob Waits(int64_t number, int64_t devices, int32_t priority = 0);
HoldingJob Holds(int64_t number, int64_t devices, int32_t priority = 0);
// The state of all of `holding` and `waiting`, with so many free devices.
QueueState StateOf(int64_t free, std::vector<HoldingJob> holding, std::vector<WaitingJob> waiting);

// "starts 3:4 | preempts 1 for 3 | spares 2 | waits 4 behind, 5 devices"
std::string ToText(const QueueDecision& decision);

// A state with jobs of up to four accounts, and quotas of some of them.
QueueState RandomState(Rng& rng);
QueueRules RandomRules(Rng& rng);

}  // namespace stagewright::testing
