// What losses of workers mean to a job. The transitions are the part of JobLife (job_life.h) that
// job_losses.cc has: workers that are lost, come back with their part of the run or without, do not
// answer, or give the run up.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "planner_service/runs/run.h"

namespace stagewright {

// A device's end is often told by those that it exchanged messages with first: the loss of its
// worker is waited for so long.
inline constexpr absl::Duration kLossIsKnownWithin = absl::Seconds(2);

// A worker that lives and whose stream has ended connects again at once, if it can. Where no other
// worker of the run could tell that it died, it is waited for no longer than this.
inline constexpr absl::Duration kConnectsAgainWithin = absl::Seconds(3);

// Why the run is over, in words that are equal for losses that are alike.
std::string CauseOf(const Run& run);

}  // namespace stagewright
