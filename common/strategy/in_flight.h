// How many samples stages keep in flight (GraphPipe appendix A.1 and algorithm 2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/strategy/strategy.h"

namespace stagewright {

// GraphPipe appendix A.1: the least number of in-flight samples of a stage with schedule (k_x, b_x)
// that keeps a successor with (k_y, b_y, i_y) busy. The ten rows of the table, in order.
int64_t ComputeInFlight(int64_t k_x, int64_t b_x, int64_t k_y, int64_t b_y, int64_t i_y);

// In-flight samples of every stage by backward traversal of the stage graph (algorithm 2): the
// largest ComputeInFlight over the successors; a stage without successors keeps k * b. Capped at
// the mini-batch. Stages are in topological order. O(stages + edges).
void AssignInFlight(Strategy& strategy);

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
