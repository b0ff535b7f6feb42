// The part of Validate() about samples.
#pragma once

#include "common/base/status.h"
#include "common/validation/validation.h"

namespace stagewright {

// Every sample passes forward and backward exactly once per stage, in sample order; forwards come
// before recomputations, these before backwards, input gradients before weight gradients (C4).
absl::Status CheckSamples(const Validation& v);

}  // namespace stagewright
