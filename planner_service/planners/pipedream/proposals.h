// What planners that rate pipelines by a bottleneck have in common around their search: the sizes
// of micro-batches worth a search, the plans that need none, and the answer.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/planners/graphpipe/infeasible.h"
#include "planner_service/search/judge.h"
#include "planner_service/search/stage_oracle.h"

namespace stagewright {

// All operators in the topological order of the model. O(operators).
std::vector<OperatorId> ModelOrder(const Problem& problem);

// At most `most` of the sizes that the options allow, the most promising first: those with the
// least time for all micro-batches and a short fill of the pipeline. Those rated before the context
// expires. O(operators) per size.
std::vector<int64_t> PromisingSizes(const StageOracle& oracle, const PlanOptions& options,
                                    size_t most, const SearchContext& context);

// The model in one stage on one device and, where replicas are allowed, on all, each with the
// largest micro-batch that fits; estimates are 0. Empty if more stages are asked for or nothing
// fits. O(operators) per micro-batch size.
std::vector<Proposal> OneStageProposals(const StageOracle& oracle, const PlanOptions& options);

// The outcome of a search for strategies of a kind that ended: limit if the context expired, else
// feasible or infeasible.
Outcome Conclude(StrategyKind kind, const StageOracle& oracle, const PlanOptions& options,
                 const Judge& judge, const SearchContext& context);

// What `Search(problem, options, context).Run()` finds, unless the options rule out any answer.
template <typename Search>
absl::StatusOr<Outcome> RunIfPossible(const Problem& problem, const PlanOptions& options,
                                      SearchContext& context) {
  Outcome outcome;
  outcome.reason = ImpossibleOptions(problem, options);
  if (!outcome.reason.empty()) return outcome;
  return Search(problem, options, context).Run();
}

}  // namespace stagewright
