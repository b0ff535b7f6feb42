// What really happened: one event per action, from the workers or from the simulator.
#pragma once

#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/program/program.h"

namespace stagewright {

struct TraceEvent {
  DeviceId device;
  Action action;
  int32_t step = 0;
  // Since a common origin; on one machine all processes share the monotonic clock.
  Nanos start = 0;
  Nanos end = 0;
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

// FAILED_PRECONDITION unless, for each step in the trace, the events are exactly the program's body
// actions, each lane runs in order without overlap, every `after` is respected, nothing that waits
// for a mark starts before the pass that has it, and no receive ends before its send started. Names
// device, step and action. The trace of an asynchronous program is that of a whole run: actions as
// in their section, `step` that of the section (of the prologue, the first); it is judged as one
// step of the unrolled program.
absl::Status CheckTrace(const Program& program, const std::vector<TraceEvent>& trace);

// Chrome trace JSON ("traceEvents"): a process per (label, device), a thread per lane kind; names
// as ToString(Action).
std::string ChromeTrace(
    const std::vector<std::pair<std::string, std::vector<TraceEvent>>>& labelled_traces,
    const std::vector<std::string>& device_names);

}  // namespace stagewright
