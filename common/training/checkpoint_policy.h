// When a job saves its state while it trains.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/base/units.h"

namespace stagewright {

struct CheckpointPolicy {
  static constexpr int32_t kDefaultKeep = 2;

  int64_t every_steps = 0;      // After every so many steps; 0: not by steps.
  Nanos every = 0;              // At least so long after the last one; 0: not by time.
  int32_t keep = kDefaultKeep;  // The newest that are kept.
  bool fail_job = false;  // One that cannot be written fails the job; otherwise it is skipped.

  // After so many steps, whatever the clock says.
  bool IsDue(int64_t steps) const { return every_steps > 0 && steps % every_steps == 0; }

  friend bool operator==(const CheckpointPolicy&, const CheckpointPolicy&) = default;
};

// INVALID_ARGUMENT names the field: none negative, at least one kept, one of every_steps and
// every_ns set, and of an asynchronous plan only every_steps. `of` goes before the field.
absl::Status Check(const CheckpointPolicy& policy, bool asynchronous, absl::string_view of = "");

}  // namespace stagewright
