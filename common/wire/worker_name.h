// What workers may be called.
#pragma once

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace stagewright {

// INVALID_ARGUMENT says what is wrong. Devices are called "WORKER/DEVICE".
inline absl::Status CheckWorkerName(absl::string_view name) {
  if (name.empty()) return absl::InvalidArgumentError("a name must not be empty");
  if (absl::StrContains(name, '/'))
    return absl::InvalidArgumentError("a name must not contain '/'");
  return absl::OkStatus();
}

}  // namespace stagewright
