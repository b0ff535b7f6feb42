// Asynchronous pipelines (1F1B with weight stashing) from all planners' stages.
#pragma once

#include <optional>

#include "planner_service/planner/planner.h"

namespace stagewright {

// The asynchronous pipeline of a strategy's stages, with this micro-batch size in all of them and
// as many in flight as it takes to keep the stages after them busy. nullopt if there is none:
// several stages on a device, or more replicas than samples. O(stages).
std::optional<Strategy> Asynchronous(const Strategy& strategy, int64_t micro_batch);

// The best of the planners that make asynchronous strategies and of the stages of all synchronous
// ones, as the evaluator judges them. Warns where a synchronous strategy is faster.
// REQUIRES: options.asynchronous.
absl::StatusOr<Outcome> SolveAsynchronous(const Problem& problem, const PlanOptions& options,
                                          SearchContext& context);

}  // namespace stagewright
