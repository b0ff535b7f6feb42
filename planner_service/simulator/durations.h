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
#include "common/program/program.h"
#include "common/program/trace.h"
#include "common/topology/cluster.h"

namespace stagewright {

// Thread-safe. Transfers are described by route and size, so that links can be shared.
class Durations {
 public:
  virtual ~Durations() = default;
  // Compute actions and collectives of the program.
  virtual Nanos Of(DeviceId device, const Action& action) const = 0;
  // From the start of a backward pass to its mark at `node` (PassMark), at most Of the pass; by
  // default that, as if the mark were its end.
  virtual Nanos UntilMark(DeviceId device, const Action& pass, int32_t node) const {
    (void)node;
    return Of(device, pass);
  }
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

}  // namespace stagewright
