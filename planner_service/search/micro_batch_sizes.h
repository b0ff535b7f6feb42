// Which micro-batches a stage may have, and which of them are worth a search: the one place where
// planners look it up. Sizes are numbers of samples.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner_service/planner/planner.h"

namespace stagewright {

class StageOracle;

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

enum class Rounding { kDown, kUp };

// The largest of the sizes that is no larger than `wanted`, or the smallest that is no smaller;
// nullopt if there is none. REQUIRES: `sizes` ascend. O(log(sizes)).
std::optional<int64_t> SizeNextTo(const std::vector<int64_t>& sizes, int64_t wanted,
                                  Rounding rounding);

// Up to so many sizes are all tried.
inline constexpr size_t kMostMicroBatchSizes = 16;

// The sizes worth trying: those of MicroBatches() for one device, of many only those next to the
// powers of two, as `rounding` has them. Rounded down, the largest size is always among them.
// Ascending. O(sqrt(mini-batch)).
std::vector<int64_t> MicroBatchSizes(const Problem& problem, const PlanOptions& options,
                                     Rounding rounding);

// At most `most` of the sizes, evenly spread over their number, the first and the last among them.
// REQUIRES: `most` > 1. O(most).
std::vector<int64_t> EvenlySpread(std::vector<int64_t> sizes, size_t most);

// Which sizes promise most in a pipeline that takes `fill` micro-batches to fill: those with the
// least time for these and all micro-batches of a step, one after the other.
struct SizePromise {
  double fill = 0;
  // Sizes that are not rated; null: all are.
  std::function<bool(int64_t)> leaves_out = nullptr;
};

// At most `most` of MicroBatchSizes(), rounded down, the most promising first; equals by size.
// Those rated before the context expires. O(operators) per size.
std::vector<int64_t> PromisingSizes(const StageOracle& oracle, const PlanOptions& options,
                                    const SizePromise& promise, size_t most,
                                    const SearchContext& context);

}  // namespace stagewright
