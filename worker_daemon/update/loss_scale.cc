#include "worker_daemon/update/loss_scale.h"

#include <algorithm>
#include <limits>

namespace stagewright {

void LossScale::Update(bool finite) {
  if (!finite) {
    value_ = std::max(value_ * rule_.backoff, rule_.least);
    good_steps_ = 0;
    return;
  }
  if (++good_steps_ < rule_.interval) return;
  good_steps_ = 0;
  // It multiplies float32 values.
  const double grown = value_ * rule_.growth;
  if (grown <= std::numeric_limits<float>::max()) value_ = grown;
}

}  // namespace stagewright
