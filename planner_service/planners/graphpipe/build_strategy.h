// From a partition of a linear order to a strategy on devices.
#pragma once

#include <string>
#include <vector>

#include "planner_service/planners/graphpipe/partition_search.h"

namespace stagewright {

// Stages in linear order on devices by PlaceStages, with data edges (and the chain's, for a
// sequential strategy) and in-flight samples by AssignInFlight.
Strategy BuildStrategy(const StageOracle& oracle, const Partition& partition, StrategyKind kind);

// "[0,4)x2 b8 k1 i16; ...": equal texts are equal partitions.
std::string ToString(const Partition& partition);

}  // namespace stagewright
