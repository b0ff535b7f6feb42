#include "worker_daemon/device/efficiency_fit.h"

#include <algorithm>
#include <cstddef>

namespace stagewright {

EfficiencyCurve CurveOf(std::vector<TimedWork> timed, double peak, double fastest) {
  EfficiencyCurve curve;
  curve.points.resize(timed.size());
  for (size_t i = timed.size(); i-- > 0;) {
    // Less work takes less time, at a rate that is no higher: all else is noise, or an overhead
    // that hides in other work.
    constexpr double kLess = 1 - 1e-6;
    const double flops = timed[i].flops;
    double& seconds = timed[i].seconds;
    if (i + 1 < timed.size()) seconds = std::min(seconds, kLess * timed[i + 1].seconds);
    seconds = std::max(seconds, flops / fastest);
    // At the peak itself the quotient is rounded, to more than 1 for some numbers.
    curve.points[i] = {flops, std::min(flops / seconds / peak, 1.0)};
  }
  return curve;
}

}  // namespace stagewright
