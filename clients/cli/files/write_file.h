// How the CLI writes files: whole or not at all.
#pragma once

#include <string>

#include "common/base/status.h"

namespace stagewright::cli {

// Written under a temporary name and renamed. FAILED_PRECONDITION names the path and the reason.
absl::Status WriteFile(const std::string& path, const std::string& contents);

}  // namespace stagewright::cli
