// The accelerator that a test program runs on: each links one of the sources that define this.
#pragma once

#include <string>

#include "common/base/status.h"

namespace stagewright::testing {

// What LibTorch calls the n-th accelerator; numbers may go round. FAILED_PRECONDITION, with the
// reason, if there is none.
absl::StatusOr<std::string> TestedAccelerator(int n);

}  // namespace stagewright::testing
