// Plans for graphs some of whose operators are cut in parallel parts (common/rewrite).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "common/graph/operator_split.h"
#include "planner_service/front_door/front_door.h"

namespace stagewright {

// The request's graphs after the rewrite. INVALID_ARGUMENT names the field and the node.
absl::StatusOr<std::shared_ptr<const SplitGraphs>> SplitGraphsOf(
    const PlanRequest& request, const std::vector<OperatorSplit>& splits);

// The same question about the graphs after the rewrite, which outlive the answer.
PlanRequest RequestFor(PlanRequest request, const SplitGraphs& graphs);

// Says in a plan for `graphs` what was cut.
void TellSplits(const std::vector<OperatorSplit>& splits,
                const std::shared_ptr<const SplitGraphs>& graphs, JudgedPlan& judged);

// What plans are made by, as the graphs of a request are.
struct WholeSolver {
  // Searches within so much work (SearchContext); the lower bound, where it is known.
  std::function<absl::StatusOr<PlanResponse>(const PlanRequest&, const ImprovementCallback&, Nanos,
                                             std::optional<Nanos>)>
      solve;
  std::function<absl::StatusOr<Nanos>(const PlanRequest&)> lower_bound;
  // NodeTooLarge of the request's problem.
  std::function<absl::StatusOr<std::optional<NodeId>>(const PlanRequest&)> too_large;
};

// Plans with the operators cut that the request names. Where it names none and `tries` is set, the
// graph is planned as it is, and then with one operator in 2, 4 and 8 parts that binds: cutting it
// lowers the bound of the step time. The fastest of these plans is kept, another only if it is at
// least kLeastGain faster, and the next operator is looked for, a few times, within a common budget
// of work (SearchContext). Operators are tried that have more than half a device's share of the
// work, the heaviest first, and of profiles only what CutOf has no objection to. Improvements get
// ever faster. Operators that are larger than every device are cut before all else, in as few of 2,
// 4 and 8 parts as fit, each by itself.
absl::StatusOr<PlanResponse> SolveWithSplits(const PlanRequest& request, bool tries,
                                             const SearchContext& context,
                                             const ImprovementCallback& on_improvement,
                                             const WholeSolver& solver);

}  // namespace stagewright
