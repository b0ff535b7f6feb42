// The part of Validate() about messages.
#pragma once

#include "common/base/status.h"
#include "common/validation/validation.h"

namespace stagewright {

// Sends and receives match; forwards and backwards wait for all they read, sends for what they
// send.
absl::Status CheckTransfers(const Validation& v);

}  // namespace stagewright
