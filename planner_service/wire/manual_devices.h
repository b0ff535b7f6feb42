// The devices of a plan by hand (docs/planners/manual.md), as its text names them, and those of a
// plan that was found: where none of them is there, it may be carried out on others.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace stagewright {

// Numbers or names. Nothing of a plan that has both, or that cannot be read, which its planner says
// better.
struct ManualDevices {
  int32_t numbered = 0;            // The largest number, and 1.
  std::vector<std::string> named;  // Sorted.
};
ManualDevices ManualDevicesOf(const std::string& plan);

// Whether the names of a plan that was found stand for other devices: none of them is among those
// that are there, and these are no fewer.
bool StandForOthers(const std::vector<std::string>& named, const std::set<std::string>& there);

// The plan with numbers instead of its names: 0, 1, ... in the order of `found_for`, which lists
// the devices of its cluster, and then of those that it does not list. As it is if it names none.
std::string ByNumber(const std::string& plan, const std::vector<std::string>& found_for);

}  // namespace stagewright
