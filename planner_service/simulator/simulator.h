// The event simulator: a virtual clock over the cursors of a program. All planners are timed by it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/schedule/program.h"
#include "common/schedule/trace.h"
#include "common/topology/cluster.h"

namespace stagewright {

// How long actions take. Transfers are described by route and size, so that links can be shared.
class Durations {
 public:
  virtual ~Durations() = default;
  // Compute actions and all-reduces.
  virtual Nanos Of(DeviceId device, const Action& action) const = 0;
  struct Transfer {
    Nanos latency = 0;
    Bytes bytes = 0;
    std::vector<int32_t> links;  // Shared resources it occupies; empty: it takes `latency` alone.
  };
  virtual Transfer TransferOf(const Action& send) const = 0;
  // Bytes per second of each link.
  virtual std::vector<double> LinkRates() const = 0;
};

// Durations from a cost model and a cluster; computed once per (stage, device kind, samples).
// References must outlive it.
std::unique_ptr<Durations> MakeModelDurations(const Graph& graph, const Program& program,
                                              const Cluster& cluster, const CostModel& costs,
                                              Optimizer optimizer);

// Durations measured in one step of a trace. A transfer lasts from the moment both ends were ready.
// FAILED_PRECONDITION if an action of the body is missing.
absl::StatusOr<std::unique_ptr<Durations>> MakeMeasuredDurations(
    const Program& program, const std::vector<TraceEvent>& trace, int32_t step);

struct DeviceUse {
  DeviceId device;
  Nanos busy = 0;         // Compute lane.
  Bytes peak_memory = 0;  // Resident included, with real overlap of transfers and compute.
};

struct Simulation {
  Nanos step_time = 0;               // From the first start to the last finish of one body.
  std::vector<DeviceUse> devices;    // In Program::devices order.
  std::vector<TraceEvent> timeline;  // By (start, device, index) if requested, else empty.
  std::vector<TraceEvent>
      critical_path;  // Ditto: a longest chain of events, each starting when the one before ended.
};

struct SimulateOptions {
  bool timeline = false;
};

// FAILED_PRECONDITION with the grid if the program deadlocks. Transfers over a common link share
// its rate equally. Deterministic: ties in time are broken by (device, action index). O(n log n)
// without contention.
absl::StatusOr<Simulation> Simulate(const Program& program, const Durations& durations,
                                    const SimulateOptions& options);

}  // namespace stagewright
