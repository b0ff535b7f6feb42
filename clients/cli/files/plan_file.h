// Plans that `--plan-file` takes.
#pragma once

#include <string>

#include "common/base/status.h"

namespace stagewright::cli {

// The text of a plan by hand (docs/planners/manual.md) from a file that holds one, what
// `plan -o json` printed, or what `plan --save` wrote. Of the last two, the best plan.
// INVALID_ARGUMENT, naming the file, if there is no plan in it.
absl::StatusOr<std::string> ReadPlanFile(const std::string& path);

}  // namespace stagewright::cli
