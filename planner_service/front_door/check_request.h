// What the front door holds against the two sides it stands between: a request before the search,
// an answer after it.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "planner_service/front_door/front_door.h"

namespace stagewright {

// With more samples per step a schedule with small micro-batches is too long to be lowered.
inline constexpr int64_t kMostMiniBatch = int64_t{1} << 20;

// INVALID_ARGUMENT names the field, for programs, too (error_details.h), its value and what it must
// be.
absl::Status CheckMiniBatch(int64_t samples);
absl::Status CheckProblem(const PlanRequest& request);  // Graph, cluster, mini-batch.
absl::Status CheckOptions(const PlanRequest& request);  // REQUIRES: CheckMiniBatch is OK.

// INTERNAL if the outcome contradicts itself or its strategy does not do what the request asks.
absl::Status CheckOutcome(const PlanRequest& request, const std::string& planner,
                          const Outcome& outcome);

// "mini_batch=512 optimizer=adam micro_batch=any ...": equal options have equal texts.
std::string OptionsText(const PlanRequest& request);

}  // namespace stagewright
