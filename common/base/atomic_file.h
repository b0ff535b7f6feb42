// Writing files so that after a crash the old one or the new one is there, whole.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

// Writes the pieces, one after the other, under a temporary name beside `path`, syncs, renames and
// syncs the directory. A file that was there is replaced by one of the same permissions.
// UNAVAILABLE with file and system's message if the disk does not take it, NOT_FOUND if there is no
// such directory, DATA_LOSS if a piece lies in a mapped file that has become shorter; the temporary
// file is gone then.
absl::Status WriteAtomically(const std::string& path,
                             const std::vector<std::span<const std::byte>>& pieces);

// Makes the directory and those above it that are absent. UNAVAILABLE with its name and system's
// message for what may pass (WithSystemError), FAILED_PRECONDITION for what does not.
absl::Status MakeDirectories(const std::string& directory);

// Makes durable what was made in the directory, "" being the present one, or removed from it.
// UNAVAILABLE or NOT_FOUND with its name and system's message.
absl::Status SyncDirectory(const std::string& directory);

}  // namespace stagewright
