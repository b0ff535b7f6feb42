// Memory that processes share is a file system. Where that is full, whoever asked for some is told
// no more than that there is none.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/base/units.h"

namespace stagewright {

// Where Linux has it.
inline constexpr char kSharedMemory[] = "/dev/shm";

// An error that may come of it. If `folder` has not the room that was needed, at most, UNAVAILABLE
// names it and says what is free; it is marked as a storage's fault (error_details.h), since others
// may give some back. Any other error, and OK, stays as it is.
absl::Status NamingFullSharedMemory(const absl::Status& error, Bytes needed,
                                    const std::string& folder = kSharedMemory);

}  // namespace stagewright
