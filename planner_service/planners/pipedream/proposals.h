// What planners that rate pipelines by a bottleneck have in common around their search: the sizes
// of micro-batches worth a search, the plans that need none, and the answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner_service/search/search_views.h"
#include "planner_service/search/stage_oracle.h"

namespace stagewright {

// The model in one stage on one device and, where replicas are allowed, on all, each with the
// largest micro-batch that fits; estimates are 0. Empty if more stages are asked for or nothing
// fits. O(operators) per micro-batch size.
std::vector<Proposal> OneStageProposals(const StageOracle& oracle, const PlanOptions& options);

// SearchViews of planners whose strategies have one stage per device or fewer.
absl::StatusOr<Outcome> SearchViews(const std::string& planner, const Problem& problem,
                                    const PlanOptions& options, SearchContext& context,
                                    const ViewSearch& search);

}  // namespace stagewright
