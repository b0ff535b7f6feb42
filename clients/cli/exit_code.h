// What `stagewright` exits with. Documented in docs/cli.md and in `stagewright --help`.
#pragma once

#include "common/base/status.h"

namespace stagewright::cli {

enum ExitCode : int {
  kSuccess = 0,
  kError = 1,        // The request failed: bad file, bad field, refused.
  kUsage = 2,        // The command line is wrong.
  kNoPlan = 3,       // Planning ended without a plan (infeasible, or the limit was reached).
  kUnreachable = 4,  // No planner, or no store of artifacts, answers.
  kJobNotWell = 5,   // The watched job, or one of a verification, failed or was cancelled.
  kDiffers = 6,      // --verify: the plan and a single device compute different things.
};

// Prints "stagewright: message" to standard error and chooses the code.
int Report(const absl::Status& status);

}  // namespace stagewright::cli
