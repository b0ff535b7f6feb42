// The portfolio and its own search.
//
// Problem: the strategy with the least iteration time over everything that the evaluator accepts:
// stages on the DAG, several stages per device (loops), replicas, micro-batch sizes, recomputation,
// and any compute order, with whole or split backward passes.
//
// Method.
//  1. Members (members.h). The other planners run, cheap ones first, each within an effort. Each
//     answer is judged by the evaluator.
//  2. Starts (draft_search.h). Drafts with loops on DAG stages (search/starts.h), and the members'
//     answers as drafts, are rated by the list schedule (models/list_schedule/list_schedule.h): the
//     former before the slow members, since they tend to be faster than what these answer.
//  3. Local search. The best starts of different kinds are improved (search/local_search.h) by
//     successive halving of their number; once for graph pipelines, once for sequential ones. A
//     sequential pipeline without its chain edges is a graph pipeline that is no slower, so it is a
//     start as well. In work that is left, graphs are polished by changing equal branches alike,
//     micro-batch sizes next to the best one's are tried (other_sizes.h), and the search is made
//     up to four times more from other starts, with fewer permissions (second_search.h).
//  4. Judgement. What comes out goes to the evaluator. Where that finds more memory in use than the
//     list schedule thought, the draft is scheduled again with less. Recomputation that gains
//     nothing is switched off.
//  5. Whole stages (whole_stages.h), where a node needs the whole mini-batch in one pass: 1 to 4
//     look for plans without micro-batches, and only drafts may have replicas, in other stages.
//     Then they run once more as if no node did, and of what they find those stages are changed.
//  6. Asynchronous strategies (asynchronous.h), if asked for: the members that make them, and the
//     stages of all of the above.
//
// Every budget counts work: passes scheduled, strategies judged, polls of the members. Equal
// problems have equal answers on machines of any speed; only the caller's deadline goes by the
// clock.
//
// Termination is kOptimal only if the iteration time equals the lower bound of the evaluator.
#include "planner_service/planners/auto/auto.h"

#include "planner_service/planners/auto/asynchronous.h"
#include "planner_service/planners/auto/effort.h"
#include "planner_service/planners/auto/portfolio.h"

namespace stagewright {
namespace {

class AutoPlanner : public Planner {
 public:
  std::string name() const override { return "auto"; }
  std::string description() const override {
    return "all planners that fit, then looped stages on the model's DAG improved by local search";
  }
  PlannerAbilities abilities() const override {
    return {.asynchronous = true, .whole_stages = true, .tries_splits = true};
  }
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    SearchContext own(context, static_cast<Nanos>(WithEffort(options, kMostWork.count())));
    own.on_improvement = context.on_improvement;
    own.lower_bound = context.lower_bound;
    return options.asynchronous ? SolveAsynchronous(problem, options, own)
                                : SolveSynchronous(problem, options, own, nullptr);
  }
};

}  // namespace

std::unique_ptr<Planner> MakeAutoPlanner() { return std::make_unique<AutoPlanner>(); }

}  // namespace stagewright
