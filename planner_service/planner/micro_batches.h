// Which micro-batches a stage may have: the one place where planners look it up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner_service/planner/planner.h"

namespace stagewright {

// Sizes of micro-batches of which each of `replicas` gets as many samples as the graph takes at
// once (Graph::samples): the one that the options force, or the divisors of the mini-batch.
// Ascending; may be empty. O(sqrt(mini-batch)).
std::vector<int64_t> MicroBatches(const Problem& problem, const PlanOptions& options,
                                  int64_t replicas = 1);

// The most replicas that may share a micro-batch of that size: one if the options forbid any.
// Replicas up to that number get few enough samples if one does.
int64_t MostReplicas(const Problem& problem, const PlanOptions& options, int64_t micro_batch);

// Why no stage can have a micro-batch; empty if one can. The options' size is one that divides the
// mini-batch. O(devices * sqrt(mini-batch)).
std::string WhyNoMicroBatch(const Problem& problem, const PlanOptions& options);

}  // namespace stagewright
