// Efficiency curves of measured times.
#pragma once

#include <vector>

#include "common/topology/device_kind.h"

namespace stagewright {

// What work of some size took, at one of several sizes.
struct TimedWork {
  double flops = 0, seconds = 0;  // Positive.
};

// Which share of the peak, in operations a second, is reached by the size of work; whatever the
// times, none is above `fastest`, the curve is one that CheckKind takes, and work takes longer than
// less work. REQUIRES: ascending flops, 0 < fastest <= peak. O(timed).
EfficiencyCurve CurveOf(std::vector<TimedWork> timed, double peak, double fastest);

}  // namespace stagewright
