// Measurements of operators in the store, one entry each, by kind of device, software and
// signature.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/base/status.h"
#include "common/cost/measured/operator_profile.h"
#include "planner_service/store/store.h"

namespace stagewright {

// As thread-safe as the store, which outlives it. A planner has one: its version counts what is
// written through it.
class ProfileStore {
 public:
  explicit ProfileStore(Store* store) : store_(store) {}

  // Replaces what is known of the same operators. What was measured in jobs is kept apart, so that
  // it never takes the place of what was measured by itself, and adds to what jobs measured of the
  // operator at other numbers of samples. All or nothing. REQUIRES: Check(profile).
  absl::Status Write(const OperatorProfile& profile);
  // What was measured by itself, and of other operators what was measured in jobs. DATA_LOSS if an
  // entry is damaged.
  absl::StatusOr<OperatorProfile> Read() const;
  // Another one after each Write of what was measured by itself. What is read is at least as new as
  // the version was before.
  int64_t version() const { return version_; }

 private:
  Store* const store_;
  std::atomic<int64_t> version_{0};
};

}  // namespace stagewright
