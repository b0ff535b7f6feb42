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

// "gpipe": a chain of stages, one per device, balanced by time in the model's own order, with all
// forward passes before all backward passes. Tries every number of micro-batches up to 1,024;
// recomputes where the memory asks for it. See gpipe.cc.
std::unique_ptr<Planner> MakeGPipePlanner();

// "manual": the plan in PlanOptions::manual, judged. INVALID_ARGUMENT if it is none or breaks a
// condition, infeasible if it does not fit. It is held to nothing else in the options: the plan is
// what was asked for.
std::unique_ptr<Planner> MakeManualPlanner();

}  // namespace stagewright
