// How long the actions of a program take: the only thing the simulator asks of the outside. Times
// come from a cost model and a cluster (a prediction) or from a trace (a measurement).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/schedule/program.h"
#include "common/schedule/trace.h"
#include "common/topology/cluster.h"

namespace stagewright {

// Thread-safe. Transfers are described by route and size, so that links can be shared.
class Durations {
 public:
  virtual ~Durations() = default;
  // Compute actions and all-reduces of the program.
  virtual Nanos Of(DeviceId device, const Action& action) const = 0;
  struct Transfer {
    Nanos latency = 0;               // Before the first byte moves.
    Bytes bytes = 0;                 // 0: a control message, which costs its latency only.
    std::span<const int32_t> links;  // Indices in LinkRates(), all occupied at once; valid as long
                                     // as the Durations. Empty: the transfer takes `latency`.
  };
  // REQUIRES: `send` is a send action of the program.
  virtual Transfer TransferOf(const Action& send) const = 0;
  // Bytes per second of each link.
  virtual std::vector<double> LinkRates() const = 0;
};

// Durations from a cost model and a cluster; computed once per (stage, device kind, samples).
// References must outlive it.
//
// A compute action takes the sum of its nodes' times (own and replicated) and the fixed costs of
// its kind of device: of the pass, and of an even share of the messages that the device exchanges
// for the stage. An optimizer step reads and writes what its stage holds for trainable parameters
// once. Links are its own while an all-reduce runs (AllReduceTime). Splitting and joining tensors
// between stages of different micro-batches or replicas happens on the way into and out of messages
// and takes no time of its own.
std::unique_ptr<Durations> MakeModelDurations(const Graph& graph, const Program& program,
                                              const Cluster& cluster, const CostModel& costs,
                                              Optimizer optimizer);

// Durations measured in one step of a trace. A transfer lasts from the moment both ends were ready
// to the end of its receive; an all-reduce from its last start to its last end.
// FAILED_PRECONDITION if an action of the body is missing (names device, step and action), or if
// the program is asynchronous and not unrolled.
absl::StatusOr<std::unique_ptr<Durations>> MakeMeasuredDurations(
    const Program& program, const std::vector<TraceEvent>& trace, int32_t step);

}  // namespace stagewright
