#include "clients/cli/files/write_file.h"

#include <span>

#include "common/base/atomic_file.h"

namespace stagewright::cli {

absl::Status WriteFile(const std::string& path, const std::string& contents) {
  const absl::Status status = WriteAtomically(path, {std::as_bytes(std::span(contents))});
  return status.ok() ? status : absl::FailedPreconditionError(status.message());
}

}  // namespace stagewright::cli
