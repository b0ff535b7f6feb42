// The GraphPipe planner (graph pipelines) and its sequential twin.
#pragma once

#include <memory>

#include "planner_service/planner/planner.h"

namespace stagewright {

// "graphpipe": stages form the DAG that the data dependencies ask for. On a model without branches
// the answer is a chain.
std::unique_ptr<Planner> MakeGraphPipePlanner();

// "sequential": the same search over the linearised model, where every stage waits for the one
// before it. What GPP is compared with.
std::unique_ptr<Planner> MakeSequentialPlanner();

}  // namespace stagewright
