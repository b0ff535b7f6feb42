// A link's latency and bandwidth from the times of messages of several sizes.
#pragma once

#include <span>

#include "common/base/status.h"
#include "common/base/units.h"

namespace stagewright {

struct LinkSample {
  Bytes size = 0;
  Nanos time = 0;
};

struct LinkRates {
  Nanos latency = 0;
  double bytes_per_second = 0;
};

// The line latency + size / bandwidth with the least squares of relative errors, so that small
// messages count as much as large ones; the latency is not negative. O(samples).
//
// INVALID_ARGUMENT, naming what is wrong: fewer than two sizes, a size that is negative, a time
// that is not positive or over a minute, times that do not grow with the size.
absl::StatusOr<LinkRates> FitLink(std::span<const LinkSample> samples);

}  // namespace stagewright
