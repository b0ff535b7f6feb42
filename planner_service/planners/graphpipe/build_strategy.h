// From a partition of a linear order to a strategy on devices.
#pragma once

#include <string>
#include <vector>

#include "planner_service/planners/graphpipe/layout.h"

namespace stagewright {

Strategy BuildStrategy(const StageOracle& oracle, const Partition& partition, const Layout& layout,
                       StrategyKind kind);

// "[0,4)x2 b8 k1 i16; [4,5)x1r ..." (r: recomputes): equal texts are equal partitions.
std::string ToString(const Partition& partition);

}  // namespace stagewright
