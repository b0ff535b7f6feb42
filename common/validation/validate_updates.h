// The part of Validate() about synchronous updates.
#pragma once

#include "common/base/status.h"
#include "common/validation/validation.h"

namespace stagewright {

// Sums, optimizer steps and all-gathers come once per device that has them, after what they use.
absl::Status CheckUpdates(const Validation& v);

}  // namespace stagewright
