// What the system says of this process.
#pragma once

#include <cstdint>

namespace stagewright {

struct ProcessStats {
  double cpu_seconds = 0;  // User and system.
  int64_t resident_bytes = 0, virtual_bytes = 0;
  double start_time_seconds = 0;  // Since the epoch.
  int64_t open_files = 0, most_files = 0;
  int64_t threads = 0;
};

// From /proc; 0 for what cannot be read there. O(open files).
ProcessStats ReadProcessStats();

}  // namespace stagewright
