// Calls into LibTorch, which throws, from code that does not.
#pragma once

#include <c10/util/Exception.h>

#include <new>

#include "common/base/status.h"

namespace stagewright {

// Runs `function`; if it throws, INTERNAL with LibTorch's message, or RESOURCE_EXHAUSTED if memory
// ran out.
template <typename Function>
absl::Status Guarded(Function&& function) {
  try {
    function();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(error.what_without_backtrace());
  } catch (const std::bad_alloc& error) {
    return absl::ResourceExhaustedError(error.what());
  } catch (const c10::Error& error) {
    return absl::InternalError(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
  return absl::OkStatus();
}

}  // namespace stagewright
