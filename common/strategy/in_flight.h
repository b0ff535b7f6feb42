// How many samples stages keep in flight (GraphPipe appendix A.1 and algorithm 2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/strategy/strategy.h"

namespace stagewright {

// What decides how many samples of a stage are in flight.
struct StageRound {
  int64_t micro_batch = 1;  // Samples.
  int32_t k = 1;            // Micro-batches that run forward, and then backward, at a time.
};

// Samples in flight by stage, in whole micro-batches: the largest ComputeInFlight over the
// successors; a stage without successors keeps k * micro_batch. At most `mini_batch`. `stages` are
// in topological order, `edges` sorted. O(stages + edges).
std::vector<int64_t> SamplesInFlight(std::span<const StageRound> stages,
                                     std::span<const StageEdge> edges, int64_t mini_batch);

}  // namespace stagewright
