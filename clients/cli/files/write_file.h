// How the CLI writes files: whole or not at all.
#pragma once

#include <string>

#include "common/base/status.h"

namespace stagewright::cli {

// FAILED_PRECONDITION names the path and the reason: UNAVAILABLE is said of planners only.
absl::Status WriteFile(const std::string& path, const std::string& contents);

}  // namespace stagewright::cli
