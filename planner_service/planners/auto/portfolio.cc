#include "planner_service/planners/auto/portfolio.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner_service/evaluator/lower_bound.h"
#include "planner_service/planner/whole_batch.h"
#include "planner_service/planners/auto/draft_search.h"
#include "planner_service/planners/auto/members.h"
#include "planner_service/planners/auto/whole_stages.h"
#include "planner_service/search/why_not.h"

namespace stagewright {
namespace {

// Operators times devices beyond which the drafts' search is left out: laying out and rating its
// starts alone would take many seconds.
constexpr int64_t kTooLargeForDrafts = 200'000;

// Where one device is as fast as several.
void WarnOfIdleDevices(const Incumbents& incumbents, Outcome& outcome) {
  if (!incumbents.best() || !incumbents.several_time() ||
      *incumbents.several_time() <= incumbents.best_time()) {
    return;
  }
  std::set<DeviceId> used;
  for (const Stage& stage : incumbents.best()->stages)
    used.insert(stage.devices.begin(), stage.devices.end());
  if (used.size() > 1) return;
  outcome.warnings.push_back(absl::StrFormat(
      "a pipeline does not pay: one device takes %.3g ms a step, the best plan found on several "
      "%.3g",
      ToSeconds(incumbents.best_time()) * 1e3, ToSeconds(*incumbents.several_time()) * 1e3));
}

}  // namespace

absl::StatusOr<std::vector<Strategy>> RunMembers(const Problem& problem, const PlanOptions& options,
                                                 const SearchContext& context,
                                                 Incumbents& incumbents, Outcome& none,
                                                 Outcome& outcome) {
  std::vector<Strategy> found;
  for (const AutoMember& member : AutoMembers(problem, options)) {
    if (context.Expired()) break;
    SearchContext own(context, member.most_effort);
    absl::StatusOr<Outcome> answer = SolveOnWholeBatches(*member.planner, problem, options, own);
    if (!answer.ok()) {  // Its conformance suite says so, too; the others go on.
      none.reason = absl::StrCat(member.planner->name(), ": ", answer.status().message());
      continue;
    }
    outcome.states += answer->states;
    outcome.candidates += answer->candidates;
    if (!answer->strategy.has_value()) {
      if (none.termination != Termination::kInfeasible) none = *std::move(answer);
      continue;
    }
    RETURN_IF_ERROR(incumbents.Consider(*answer->strategy, answer->iteration_time).status());
    found.push_back(*std::move(answer->strategy));
  }
  return found;
}

void SayNoneFound(const Problem& problem, const PlanOptions& options, const Incumbents& incumbents,
                  const Outcome& none, Outcome& outcome) {
  const absl::Status closest =
      incumbents.rejection().ok() ? absl::UnknownError(none.reason) : incumbents.rejection();
  const Outcome said = none.termination == Termination::kInfeasible
                           ? none
                           : NoneFound("auto", problem, options, {"", "", closest});
  outcome.termination = said.termination;
  outcome.reason = said.reason;
}

absl::StatusOr<Outcome> SolveSynchronous(const Problem& problem, const PlanOptions& options,
                                         SearchContext& context, std::vector<Strategy>* found) {
  Outcome outcome;
  Incumbents incumbents(problem, options, context);
  Outcome none;  // The answer of a member that found nothing: a proof, if any member has one.
  none.termination = Termination::kLimit;
  ASSIGN_OR_RETURN(const std::vector<Strategy> members,
                   RunMembers(problem, options, context, incumbents, none, outcome));
  Nanos bound = 0;
  const auto optimal = [&] {
    return incumbents.best().has_value() && incumbents.best_time() <= bound;
  };
  if (!context.Expired()) {
    bound = LowerBound(*problem.graph, *problem.operators, *problem.cluster, *problem.costs,
                       problem.mini_batch, {problem.optimizer, /*asynchronous=*/false});
  }
  const int64_t size = int64_t{problem.operators->size()} * problem.cluster->size();
  const bool whole = HasWholeStages(problem);
  const bool possible =
      !whole || options.micro_batch == 0 || options.micro_batch == problem.mini_batch;
  PlanOptions drawn = options;
  if (whole) drawn.micro_batch = problem.mini_batch;  // Moves looks after its devices.
  if (!optimal() && possible && size <= kTooLargeForDrafts && !context.Expired()) {
    std::vector<Draft> drafts;
    for (const Strategy& strategy : members) {
      if (auto draft = ToDraft(problem, strategy)) drafts.push_back(*std::move(draft));
    }
    DraftSearch search(problem, drawn, context, drafts, incumbents);
    RETURN_IF_ERROR(search.Run(bound));
    outcome.states += search.states();
  }
  if (whole && !optimal() && !context.Expired()) {
    RETURN_IF_ERROR(ConsiderWholeStages(problem, options, context, incumbents, outcome));
  }
  if (!context.Expired()) RETURN_IF_ERROR(incumbents.DropIdleRecomputation());
  outcome.candidates += incumbents.judged();
  WarnOfIdleDevices(incumbents, outcome);
  outcome.strategy = incumbents.best();
  outcome.sequential = incumbents.sequential();
  if (found != nullptr) *found = incumbents.accepted();
  if (optimal()) {
    outcome.termination = Termination::kOptimal;
  } else if (context.Stopped()) {
    SayStopped(outcome);
  } else if (outcome.strategy.has_value()) {
    outcome.termination = Termination::kFeasible;
  } else if (!possible && incumbents.judged() == 0) {
    outcome.termination = Termination::kLimit;
    outcome.reason = absl::StrCat("a micro_batch of ", options.micro_batch,
                                  " is asked for, and every stage has such a node");
  } else {
    SayNoneFound(problem, options, incumbents, none, outcome);
  }
  return outcome;
}

}  // namespace stagewright
