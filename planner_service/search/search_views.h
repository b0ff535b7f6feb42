// A search that takes all devices for equal, on every view of a cluster (placement_views.h), and
// the answer that it ends with.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "planner_service/search/judge.h"

namespace stagewright {

// Searches `seen`, the problem as a view of the cluster has it, has its proposals judged by `judge`
// and adds to `found` the states it visited. As a limit, `found` says in its reason what was left
// out; without an answer, the reason is what was lacking (Shortfall::need).
using ViewSearch = std::function<absl::Status(const Problem& seen, Judge& judge, Outcome& found)>;

// What a planner whose strategies have at most `loops` stages on a device (0: any number) finds on
// single devices, on the cluster, and on all views of it, of which those are left out that the
// options rule out (ImpossibleOptions). Limit if the context expired or something was left out,
// else feasible; without a strategy as NoneFound has it.
absl::StatusOr<Outcome> SearchViews(const std::string& planner, const Problem& problem,
                                    const PlanOptions& options, SearchContext& context,
                                    int64_t loops, const ViewSearch& search);

}  // namespace stagewright
