// Whom to preempt.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/queue/queue_state.h"

namespace stagewright {

// The fewest jobs that return `needed` devices together; among as many, those of the lowest
// priority, then the youngest. Empty if all of them do not suffice. REQUIRES: needed > 0.
// O(candidates^2 log candidates).
std::vector<int64_t> FewestVictims(std::vector<HoldingJob> candidates, int64_t needed);

}  // namespace stagewright
