// A strategy of one stage, and the search over its micro-batch sizes: what the baselines share.
#pragma once

#include <string>
#include <vector>

#include "planner_service/planner/planner.h"

namespace stagewright {

// All operators in one stage on `devices`, one micro-batch in flight.
Strategy OneStage(const Problem& problem, const std::vector<DeviceId>& devices,
                  int64_t micro_batch);

// Evaluates OneStage for every choice of devices (they have the same number of devices) and every
// micro-batch size that the options allow and that gives each replica a sample, largest first.
// Keeps the fastest; ties to the first. Infeasible with the last evaluation's reason if none fits;
// limit if the context expires first. `planner` is for messages.
absl::StatusOr<Outcome> BestOneStage(const Problem& problem, const PlanOptions& options,
                                     const std::vector<std::vector<DeviceId>>& choices,
                                     const std::string& planner, SearchContext& context);

}  // namespace stagewright
