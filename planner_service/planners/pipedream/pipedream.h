// PipeDream: sequential pipelines with replicated stages, cut so that the slowest is fastest.
#pragma once

#include <memory>

#include "planner_service/planner/planner.h"

namespace stagewright {

// "pipedream". With PlanOptions::asynchronous the pipeline is never flushed; otherwise mini-batches
// are synchronous and the schedule is 1F1B. Stages follow a topological order, whatever branches
// there are.
std::unique_ptr<Planner> MakePipeDreamPlanner();

}  // namespace stagewright
