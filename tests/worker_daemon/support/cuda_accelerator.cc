#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "absl/strings/str_cat.h"
#include "tests/worker_daemon/support/tested_accelerator.h"

namespace stagewright::testing {

absl::StatusOr<std::string> TestedAccelerator(int n) {
  if (!at::hasCUDA()) return absl::FailedPreconditionError("LibTorch has no CUDA here, or no GPU");
  return absl::StrCat("cuda:", n % c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount());
}

}  // namespace stagewright::testing
