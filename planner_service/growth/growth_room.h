// How many more devices a running job could have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stagewright {

// What the job has and who else wants what is free.
struct GrowthCase {
  int64_t has = 0;
  int64_t wants = 0;                  // As many as it may grow to.
  int64_t free = 0;                   // Devices that are open to jobs and nobody's.
  int64_t waiting = 0;                // Jobs that wait for what is there: they come first.
  std::optional<int64_t> quota_left;  // What its account may hold besides; none: any number.
};

struct GrowthRoom {
  int64_t more = 0;
  std::string why;  // "runs on 2 of 3 devices: none is free"; empty unless there are no more.
};

// REQUIRES: has < wants.
GrowthRoom RoomToGrow(const GrowthCase& job);

// What becomes of a job's devices: "4 devices instead of 2" or, of as many as before, those that
// are others, "c/cpu0 instead of a/cpu0"; empty if they are the same.
std::string DevicesInstead(const std::vector<std::string>& now,
                           const std::vector<std::string>& before);

// "runs on 2 of 3 devices: " and why.
std::string StaysOn(int64_t has, int64_t wants, const std::string& why);

}  // namespace stagewright
