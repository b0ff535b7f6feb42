// How fast a layout runs, from closed formulas: the messages between its stages, the round trip of
// a micro-batch from each stage to the end of the pipeline and back, and the period that both
// allow. Used to rule candidates out before any is simulated, and to keep enough samples in flight.
#pragma once

#include <vector>

#include "common/lowering/receive_posting.h"
#include "planner_service/planners/graphpipe/layout.h"

namespace stagewright {

struct Pace {
  double bound = 0;  // ns per sample that compute and the busiest link allow.
  // ns per sample, with the round trips that the samples in flight have to cover.
  double period = 0;
  std::vector<double> round_trip;  // By stage: ns of one micro-batch, its own compute included.
  double iteration = 0;            // Estimated iteration time, ns.
  double hope = 0;                 // Iteration time if all messages overlapped with compute, ns.
};

// Messages that meet at one stage share links; others do not meet. O(edges * replicas).
Pace EstimatePace(const StageOracle& oracle, const Partition& partition, const Layout& layout,
                  ReceivePosting posting = {});

// No layout of the partition has less hope but for rounding. `edges`: its StageEdges. O(stages +
// edges).
double LeastHope(const StageOracle& oracle, const Partition& partition,
                 const std::vector<CostTable::Exchange>& edges);

// ComputeInFlight covers the compute time of the stages behind, not the messages on the way. Raises
// the samples in flight, where memory permits, to what a round trip needs at the pace of `bound`.
// Returns false if nothing changed. Keeps every stage at what its successors' samples in flight
// ask for, so that the schedule cannot deadlock.
bool CoverMessages(const StageOracle& oracle, const Partition& partition, const Pace& pace,
                   Bytes memory, Layout& layout);

}  // namespace stagewright
