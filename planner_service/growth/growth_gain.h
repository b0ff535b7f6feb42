// Whether more devices pay for the change of plans.
//
// A job that changes its plan stands still while it saves its state, ends its run and starts the
// next one. That is taken for twice what its present run took to start, of which one half saves
// what the other half loads, and a second for all else. The steps that are left must save twice
// that: predictions err, and a change that saves little is not worth a risk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/base/units.h"

namespace stagewright {

inline constexpr double kLeastReturn = 2;
inline constexpr absl::Duration kLeastChange = absl::Seconds(1);
// What a run took to start that a planner before this one saw.
inline constexpr absl::Duration kUnknownStart = absl::Seconds(15);

struct GrowthOffer {
  int64_t steps_left = 0;
  Nanos step_time = 0;                  // As measured.
  Nanos before = 0, after = 0;          // A step takes, by the same costs.
  std::optional<absl::Duration> start;  // What the present run took from its preparation to steps.
};

struct GrowthVerdict {
  bool pays = false;
  std::string why;  // With the numbers.
};

GrowthVerdict PaysToGrow(const GrowthOffer& offer);

}  // namespace stagewright
