#include "clients/cli/exit_code.h"

#include <iostream>

namespace stagewright::cli {

int Report(const absl::Status& status) {
  std::cerr << "stagewright: " << status.message() << std::endl;
  return status.code() == absl::StatusCode::kUnavailable ? kUnreachable : kError;
}

}  // namespace stagewright::cli
