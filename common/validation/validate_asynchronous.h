// The part of Validate() about asynchronous updates.
#pragma once

#include "common/base/status.h"
#include "common/validation/validation.h"

namespace stagewright {

// In an unrolled asynchronous program, all-reduces and optimizer steps come once after every
// backward pass, before the stage computes anything else. With vertical sync the lags of all stages
// fit together.
absl::Status CheckAsynchronousUpdates(const Validation& v);

}  // namespace stagewright
