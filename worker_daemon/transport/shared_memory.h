// Memory that processes share is a file system. Where that is full, whoever asked for some is told
// no more than that there is none.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/base/units.h"

namespace stagewright {

// Where Linux has it.
inline constexpr char kSharedMemory[] = "/dev/shm";

// Where UCX has it.
std::string SharedMemoryOfUcx();

// An error that may come of it. If `folder` has not the room that was needed, at most, UNAVAILABLE
// names it and says what is free; it is marked as a storage's fault (error_details.h), since others
// may give some back. Any other error, and OK, stays as it is.
absl::Status NamingFullSharedMemory(const absl::Status& error, Bytes needed,
                                    const std::string& folder = kSharedMemory);

// An error of messages that did not come in time. UCX 1.13 takes memory for those that arrive
// before they are received, while a run goes on. Where there is none it loses them, and no call
// fails. If `folder` has no room for the next, the message says so, too; the code is the same.
absl::Status NotingFullSharedMemory(const absl::Status& error, const std::string& folder);

}  // namespace stagewright
