// The plans that need little search or none: what every other planner has to beat.
#pragma once

#include <memory>

#include "planner_service/planner/planner.h"

namespace stagewright {

// "single": everything on one device. Tries one device of every (kind, memory) and every
// micro-batch size, largest first; keeps the fastest that fits.
std::unique_ptr<Planner> MakeSinglePlanner();

// "data-parallel": one stage with a replica on every device (on as many as the mini-batch has
// samples, if those are fewer). Tries every micro-batch size; keeps the fastest that fits.
std::unique_ptr<Planner> MakeDataParallelPlanner();

}  // namespace stagewright
