#include "common/cost/update.h"

#include <algorithm>
#include <cmath>

namespace stagewright {

Nanos OptimizerStepTime(const DeviceKind& kind, Bytes resident, int64_t parameters) {
  if (resident == 0) return 0;
  const double seconds = 2.0 * static_cast<double>(resident) / UpdateRate(kind);
  return kind.kernel_overhead + kind.step_overhead + parameters * kind.parameter_overhead +
         Nanos(std::round(seconds * 1e9));
}

double LeastOptimizerStepTime(const DeviceKind& kind, Bytes resident) {
  // A step is rounded to whole nanoseconds: at most one less.
  return std::max(0.0, 2e9 * static_cast<double>(resident) / UpdateRate(kind) - 1);
}

}  // namespace stagewright
