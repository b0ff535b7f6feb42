// Runs a program with work that takes no time.
#pragma once

#include <cstdint>
#include <vector>

#include "common/program/program.h"

namespace stagewright {

struct Stuck {
  int32_t row = 0;  // In Program::devices.
  int32_t action =
      0;  // The first unfinished compute action of the body, else the first unfinished.
  std::vector<int32_t> waits_for;  // Unfinished actions that it waits for.
};

// Runs the bodies of all devices. A transfer ends when both ends have started it, an all-reduce
// when all its devices have. Returns the devices that cannot finish; empty if the program ends.
// REQUIRES: CheckIds. O(actions).
std::vector<Stuck> DryRun(const Program& program);

}  // namespace stagewright
