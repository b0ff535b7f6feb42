// The directories that a worker's flags name, looked at when it starts: jobs would tell of them
// when they fail, and nobody else.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

struct OwnDirectory {
  std::string flag, path;
  bool written = false;  // Jobs write to it; otherwise they read.
  bool made = false;     // It is made when it is needed.
};

// INVALID_ARGUMENT names flag and path of what is no directory, and does not become one by itself.
// What may yet come or be mended is a line each: a directory that is not there, that may not be
// read or written, or that does not answer within five seconds, as on a file server that hangs.
absl::StatusOr<std::vector<std::string>> LookAt(const std::vector<OwnDirectory>& directories);

}  // namespace stagewright
