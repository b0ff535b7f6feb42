// Which links are to be measured next: a pure function of who is there and what is known.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "planner_service/registry/link_table.h"
#include "planner_service/registry/worker_registry.h"

namespace stagewright {

// Some devices that measure together: two that take turns, or a crowd that works at once.
struct Probe {
  struct Participant {
    std::string worker;
    std::string device;
  };
  std::vector<Participant> participants;
  Crowd crowd;  // Without devices if two take turns.

  bool together() const { return crowd.devices > 0; }
  // "w0 - w1", "3 devices of host": unique, for people and for sets of probes.
  std::string Name() const;
};

// At most so many devices of a machine are measured at once.
inline constexpr int32_t kMostTogether = 8;

// What of `devices` (all that are registered) is not in `table`, or is named in `again`; pairs
// first. A worker stands for its devices with its first one, and with the first two for what goes
// on between them. CPU devices only. O(workers ^ 2).
std::vector<Probe> ProbesToDo(const std::vector<RegisteredDevice>& devices, const LinkTable& table,
                              const std::set<std::string>& again);

// No job runs on the machines of the probe, where it would be disturbed and disturb.
bool MayRun(const Probe& probe, const std::vector<RegisteredDevice>& devices);

}  // namespace stagewright
