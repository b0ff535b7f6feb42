// What the operators of a request's graphs cost.
#pragma once

#include <memory>

#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "planner_service/front_door/front_door.h"

namespace stagewright {

// By the request's profile, or by the roofline where it has none. `graph` is the request's, one of
// its lengths, or either with operators cut; it and the request's cluster outlive the model.
std::unique_ptr<CostModel> MakeCosts(const PlanRequest& request, const Graph& graph);

}  // namespace stagewright
