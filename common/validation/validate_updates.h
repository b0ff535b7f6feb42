// The part of Validate() about synchronous updates.
#pragma once

#include "common/base/status.h"
#include "common/validation/validation.h"

namespace stagewright {

// All-reduces and optimizer steps come once per device that has them, after the gradients they use.
absl::Status CheckUpdates(const Validation& v);

}  // namespace stagewright
