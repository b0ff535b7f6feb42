// From a partition of a linear order to a strategy on devices.
#pragma once

#include <string>
#include <vector>

#include "planner_service/planners/graphpipe/partition_search.h"

namespace stagewright {

// Stages in linear order on devices by PlaceStages, with data edges (and the chain's, for a
// sequential strategy) and in-flight samples by AssignInFlight.
Strategy BuildStrategy(const StageOracle& oracle, const Partition& partition, StrategyKind kind);

// Iteration time from a partition's figures alone, ns: steady state at the bottleneck or at the
// pace that a stage's in-flight samples allow for a round trip to the end of the pipeline, one
// pass through the pipeline to fill and drain it, and the longest gradient sum. Ignores contention.
double EstimateIteration(const StageOracle& oracle, const Partition& partition,
                         const Strategy& strategy);

// "[0,4)x2 b8 k1 i16; ...": equal texts are equal partitions.
std::string ToString(const Partition& partition);

}  // namespace stagewright
