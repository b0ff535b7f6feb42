// Measurements of operators in the store, one entry each, by kind of device, software and
// signature.
#pragma once

#include "common/base/status.h"
#include "common/cost/measured/operator_profile.h"
#include "planner_service/store/store.h"

namespace stagewright {

// As thread-safe as the store, which outlives it.
class ProfileStore {
 public:
  explicit ProfileStore(Store* store) : store_(store) {}

  // Replaces what is known of the same operators. All or nothing. REQUIRES: Check(profile).
  absl::Status Write(const OperatorProfile& profile);
  // DATA_LOSS if an entry is damaged.
  absl::StatusOr<OperatorProfile> Read() const;

 private:
  Store* const store_;
};

}  // namespace stagewright
