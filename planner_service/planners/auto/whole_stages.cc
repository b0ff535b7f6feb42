#include "planner_service/planners/auto/whole_stages.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "planner_service/planner/whole_batch.h"
#include "planner_service/planners/auto/effort.h"
#include "planner_service/planners/auto/portfolio.h"

namespace stagewright {
namespace {

// The effort of judging what is changed (EffortOfJudging).
constexpr int64_t kJudgingEffort = 600'000;

}  // namespace

absl::Status ConsiderWholeStages(const Problem& problem, const PlanOptions& options,
                                 const SearchContext& context, Incumbents& incumbents,
                                 Outcome& outcome) {
  const std::vector<bool> needs_it = WholeOperators(problem);
  const bool all = std::find(needs_it.begin(), needs_it.end(), false) == needs_it.end();
  if (all || problem.cluster->size() == 1) return absl::OkStatus();
  GraphData data = problem.graph->data();
  for (Node& node : data.nodes) node.batch_dependent = false;
  ASSIGN_OR_RETURN(const Graph free, Graph::Create(std::move(data)));
  Problem seen = problem;
  seen.graph = &free;
  SearchContext silent(context, SearchContext::kAnyEffort);
  std::vector<Strategy> found;
  ASSIGN_OR_RETURN(const Outcome without, SolveSynchronous(seen, options, silent, &found));
  outcome.states += without.states;
  outcome.candidates += without.candidates;
  const SearchContext judging(context, WithEffort(options, kJudgingEffort));
  for (const Strategy& strategy : found) {
    const Strategy whole = WithWholeStages(problem, strategy);
    judging.Charge(EffortOfJudging(whole));
    if (judging.Expired()) break;
    RETURN_IF_ERROR(incumbents.Consider(whole).status());
  }
  return absl::OkStatus();
}

}  // namespace stagewright
