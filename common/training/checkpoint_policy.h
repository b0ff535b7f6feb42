// When a job saves its state while it trains.
//
// Checkpoints are written beside training, and a device takes one only when its share of the last
// is written. So when all devices have begun one, the one before it is whole, and no step after the
// next is done before that: a loss costs at most what lies between one and the next but one. A job
// that may start again saves halfway, too, so that this is every_steps.
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
  bool halfway = false;   // Halfway between those by steps, too; `keep` does not count these.

  // After so many steps, whatever the clock says.
  bool IsDue(int64_t steps) const {
    return every_steps > 0 && (steps % every_steps == 0 || IsHalfway(steps));
  }
  // No more than a stopgap until the next one is whole.
  bool IsHalfway(int64_t steps) const {
    return halfway && every_steps > 1 && steps % every_steps == every_steps / 2;
  }

  friend bool operator==(const CheckpointPolicy&, const CheckpointPolicy&) = default;
};

// INVALID_ARGUMENT names the field: none negative, at least one kept, one of every_steps and
// every_ns set, and of an asynchronous plan only every_steps. `of` goes before the field.
absl::Status Check(const CheckpointPolicy& policy, bool asynchronous, absl::string_view of = "");

}  // namespace stagewright
