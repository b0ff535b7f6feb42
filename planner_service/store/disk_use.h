// What the planner's state takes on its disk, and what is left there.
#pragma once

#include <cstdint>
#include <string>

namespace stagewright {

struct DiskUse {
  int64_t used_bytes = 0;
  int64_t free_bytes = 0;  // For programs without privileges.
};

// For the SQLite file `state` with the files beside it whose names begin with its own; zeros for
// ":memory:" and what cannot be read. O(files beside it).
DiskUse DiskUseOf(const std::string& state);

}  // namespace stagewright
