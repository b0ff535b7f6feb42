#include "planner_service/planners/pipedream/proposals.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/planners/baselines/fastest.h"
#include "planner_service/planners/graphpipe/infeasible.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {

absl::StatusOr<Outcome> SearchViews(const std::string& planner, const Problem& problem,
                                    const PlanOptions& options, SearchContext& context,
                                    const ViewSearch& search) {
  return SearchViews(planner, problem, options, context, ImpossibleOptions, search);
}

}  // namespace stagewright
