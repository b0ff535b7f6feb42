// The event simulator: a virtual clock over the cursors of a program. All planners are timed by it.
//
// Rules, the same that a worker's engine follows:
//   - An action starts as soon as its cursor says that it is ready.
//   - A send and a receive start when they are posted; the transfer itself begins when both ends
//     are posted (rendezvous), takes its latency and then its bytes at the rate its links give it,
//     and ends both.
//   - Transfers over a common link share it equally: a transfer moves at the smallest, over its
//     links, of rate / active transfers (LinkShares).
//   - A collective begins when its last member starts it and ends for all at once. A sum that waits
//     for marks of a backward pass starts when that comes to them.
//
// An asynchronous program is simulated unrolled, twice: the steps that the longer run has more are
// steady state. Their share of its length is the step time, their share of busy time that of a
// step; peak memory, timeline and critical path are those of the longer run, with its samples.
#pragma once

#include <functional>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/program/program.h"
#include "common/program/trace.h"
#include "planner_service/simulator/durations.h"

namespace stagewright {

struct DeviceUse {
  DeviceId device;
  Nanos busy = 0;         // Compute lane.
  Bytes peak_memory = 0;  // Resident included, with real overlap of transfers and compute.
};

struct Simulation {
  Nanos step_time = 0;  // From the first start to the last finish of one body; steady state.
  std::vector<DeviceUse> devices;    // In Program::devices order.
  std::vector<TraceEvent> timeline;  // By (start, device, index) if requested, else empty.
  // If the timeline is requested: a longest chain of events from time 0 to step_time. Each starts
  // when the one before ended; of a transfer or an all-reduce it holds the event that started last,
  // and a backward pass that all-reduces follow from a mark on ends there.
  std::vector<TraceEvent> critical_path;
};

struct SimulateOptions {
  bool timeline = false;
  std::function<bool()> stop;  // Asked now and then: true ends the simulation.
};

// CANCELLED if `stop` says so. FAILED_PRECONDITION with the grid if the program deadlocks.
// REQUIRES: indices in range, as Validate checks. Deterministic: ties in time are broken by
// (device, action index), and everything that ends at one moment ends before anything starts at it.
// O(n log n) without contention; a change on a link costs O(log n) per transfer on it.
absl::StatusOr<Simulation> Simulate(const Program& program, const Durations& durations,
                                    const SimulateOptions& options);

}  // namespace stagewright
