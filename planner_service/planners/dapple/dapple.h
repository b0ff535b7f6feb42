// DAPPLE: synchronous pipelines with replicated stages, planned for the latency of a mini-batch.
#pragma once

#include <memory>

#include "planner_service/planner/planner.h"

namespace stagewright {

// "dapple". Stages follow a topological order and are placed by node; early backward schedules.
std::unique_ptr<Planner> MakeDapplePlanner();

}  // namespace stagewright
