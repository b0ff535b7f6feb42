// What planners that rate pipelines by a bottleneck have in common around their search: the sizes
// of micro-batches worth a search, the plans that need none, and the answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner_service/search/search_views.h"
#include "planner_service/search/stage_oracle.h"

namespace stagewright {

// SearchViews of planners whose strategies have one stage per device or fewer.
absl::StatusOr<Outcome> SearchViews(const std::string& planner, const Problem& problem,
                                    const PlanOptions& options, SearchContext& context,
                                    const ViewSearch& search);

}  // namespace stagewright
