// The operators of a problem as the layers of a chain: layer p is the operator at position p of an
// oracle's order.
#pragma once

#include <vector>

#include "common/graph/dag.h"
#include "planner_service/models/stage_oracle.h"

namespace stagewright {

// Which layers read from which. O(operators + edges).
Dag LayerGraph(const StageOracle& oracle);

// By layer, the bytes per sample of its values that other layers read, each value once.
// O(values).
std::vector<double> LayerOutputs(const StageOracle& oracle);

}  // namespace stagewright
