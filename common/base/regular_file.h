// Files that are named by others: opened without waiting, and only if they are files.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "common/base/status.h"

namespace stagewright {

// A descriptor for reading, the caller's to close. NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE if
// it cannot be opened; INVALID_ARGUMENT says what it is if it is no regular file: a FIFO would be
// waited for, a device never ends. Each names the path.
absl::StatusOr<int> OpenRegularFile(const std::string& path);

// Hands the contents to `take`, a block after the other. Errors of OpenRegularFile, or UNAVAILABLE.
absl::Status ReadRegularFile(const std::string& path,
                             const std::function<void(std::span<const char>)>& take);

// The contents. Errors of ReadRegularFile, or DATA_LOSS if there are more than `most` bytes.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t most);

}  // namespace stagewright
