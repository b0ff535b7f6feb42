// GPipe as a planner.
#pragma once

#include <memory>

#include "planner_service/planner/planner.h"

namespace stagewright {

// "gpipe": a chain of stages, one per device, balanced by time in the model's own order, with all
// forward passes before all backward passes. Tries every number of micro-batches up to 1,024;
// recomputes where the memory asks for it.
std::unique_ptr<Planner> MakeGPipePlanner();

}  // namespace stagewright
