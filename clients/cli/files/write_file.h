// How the CLI writes files: whole or not at all.
#pragma once

#include <string>

#include "common/base/status.h"

namespace stagewright::cli {

// Replaces the file, and writes into what is none: a pipe, a device. Links are followed.
// FAILED_PRECONDITION names the path and the reason: UNAVAILABLE is said of planners only.
absl::Status WriteFile(const std::string& path, const std::string& contents);

// Where links at `path` lead, which may be nothing yet. FAILED_PRECONDITION if that is a pipe or a
// device, in whose place no file may come.
absl::StatusOr<std::string> FileToReplace(const std::string& path);

}  // namespace stagewright::cli
