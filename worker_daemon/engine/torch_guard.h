// Calls into LibTorch, which throws, from code that does not.
#pragma once

#include <c10/util/Exception.h>

#include "common/base/status.h"

namespace stagewright {

// Runs `function`; INTERNAL with LibTorch's message if it throws.
template <typename Function>
absl::Status Guarded(Function&& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    return absl::InternalError(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
  return absl::OkStatus();
}

}  // namespace stagewright
