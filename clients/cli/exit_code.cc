#include "clients/cli/exit_code.h"

#include <iostream>

#include "common/base/error_details.h"

namespace stagewright::cli {

int Report(const absl::Status& status) {
  std::cerr << "stagewright: " << status.message() << std::endl;
  // A full disk is this machine's.
  return absl::IsUnavailable(status) && !IsOfStorage(status) ? kUnreachable : kError;
}

}  // namespace stagewright::cli
