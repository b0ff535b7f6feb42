// A search that takes all devices for equal, on every view of a cluster (placement_views.h), and
// the answer that it ends with.
#pragma once

#include <functional>
#include <string>

#include "planner_service/search/judge.h"

namespace stagewright {

// The outcome of a search that ended, of which `found` says what it visited and, as a limit, what
// it left out: limit if the context expired or something was left out, else feasible; without a
// strategy as NoneFound has it, which takes up found.reason as what came closest.
Outcome Conclude(const std::string& planner, const Problem& problem, const Judge& judge,
                 const SearchContext& context, Outcome found);

// Searches `seen`, the problem as a view of the cluster has it, has its proposals judged by `judge`
// and adds to `found` as Conclude takes it.
using ViewSearch = std::function<absl::Status(const Problem& seen, Judge& judge, Outcome& found)>;

// Why the options rule out any answer of a planner; empty if they do not.
using Objection = std::string (*)(const Problem& problem, const PlanOptions& options);

// What a planner finds on single devices, on the cluster, and on all views of it, of which those
// are left out that the options rule out.
absl::StatusOr<Outcome> SearchViews(const std::string& planner, const Problem& problem,
                                    const PlanOptions& options, SearchContext& context,
                                    Objection objection, const ViewSearch& search);

}  // namespace stagewright
