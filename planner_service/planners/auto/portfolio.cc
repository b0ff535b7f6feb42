#include "planner_service/planners/auto/portfolio.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner_service/evaluator/lower_bound.h"
#include "planner_service/planner/whole_batch.h"
#include "planner_service/planners/auto/draft_search.h"
#include "planner_service/planners/auto/effort.h"
#include "planner_service/planners/auto/members.h"
#include "planner_service/planners/auto/other_sizes.h"
#include "planner_service/planners/auto/second_search.h"
#include "planner_service/planners/auto/whole_stages.h"
#include "planner_service/search/merged_operators.h"
#include "planner_service/search/why_not.h"

namespace stagewright {
namespace {

// Memories that a member runs with again, over what its first answer needs.
constexpr double kMemories[] = {1.6, 1.25, 0.95, 0.75, 0.55, 0.4};
// Parts of the work that is left which may go to all members, and to one that runs again; and to
// the search without nodes that need the whole mini-batch.
constexpr double kMembers = 0.45;
constexpr double kAgain = 0.4;
constexpr double kWithWholeStages = 0.5;

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

Cluster WithMemory(const Cluster& cluster, Bytes memory) {
  ClusterData data = cluster.data();
  for (Device& device : data.devices) device.memory = std::min(device.memory, memory);
  return *Cluster::Create(std::move(data));
}

// A member's answers on devices of other memories than its first one needed, `peak`.
absl::Status RunOnLess(const AutoMember& member, const Problem& problem, const PlanOptions& options,
                       const SearchContext& whole, Bytes peak, Incumbents& incumbents,
                       std::vector<Strategy>& found) {
  const SearchContext context(whole, PartOfWork(whole, kAgain));
  Bytes most = 0;
  for (const Device& device : problem.cluster->devices()) most = std::max(most, device.memory);
  for (const double share : kMemories) {
    const auto memory = static_cast<Bytes>(share * static_cast<double>(peak));
    if (context.Expired()) break;
    if (memory >= most || memory < 1) continue;
    const Cluster less = WithMemory(*problem.cluster, memory);
    Problem seen = problem;
    seen.cluster = &less;
    SearchContext own(context, member.most_effort);
    ASSIGN_OR_RETURN(Outcome answer, SolveOnWholeBatches(*member.planner, seen, options, own));
    if (!answer.strategy.has_value()) break;
    RETURN_IF_ERROR(incumbents.Consider(*answer.strategy).status());
    found.push_back(*std::move(answer.strategy));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Strategy>> RunMembers(const Problem& problem, const PlanOptions& options,
                                                 const SearchContext& context,
                                                 Incumbents& incumbents, Outcome& none,
                                                 Outcome& outcome) {
  std::vector<Strategy> found;
  bool first = true;
  const SearchContext members(context, PartOfWork(context, kMembers));
  for (const AutoMember& member : AutoMembers(problem, options)) {
    if (members.Expired()) break;
    const SearchContext part(members, PartOfWork(members, member.most_work));
    part.Spend(work::kDevicePair * int64_t{problem.cluster->size()} * problem.cluster->size());
    SearchContext own(part, member.most_effort);
    // The very first plan is passed on at once: a member may look at many before it answers.
    own.on_improvement = [&](const Strategy& strategy) {
      if (first && context.on_improvement) context.on_improvement(strategy);
      first = false;
    };
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
    std::optional<Verdict> known;
    if (answer->iteration_time && !member.several_memories) known = {answer->iteration_time};
    ASSIGN_OR_RETURN(const Verdict verdict,
                     incumbents.Consider(*answer->strategy, std::move(known)));
    found.push_back(*std::move(answer->strategy));
    if (member.several_memories && verdict.time.has_value()) {
      RETURN_IF_ERROR(RunOnLess(member, problem, options, own, verdict.peak, incumbents, found));
    }
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

absl::StatusOr<Outcome> SolveSynchronous(const Problem& whole, const PlanOptions& options,
                                         SearchContext& context, std::vector<Strategy>* found) {
  // A search that shares its work with others leaves them what it does not need.
  const bool alone = context.WorkLeft().count() >= WithEffort(options, kMostWork.count());
  const std::optional<OperatorGraph> fewer = FewerOperators(whole);
  Problem problem = whole;
  if (fewer.has_value()) problem.operators = &*fewer;
  Outcome outcome;
  Incumbents incumbents(problem, options, context);
  Outcome none;  // The answer of a member that found nothing: a proof, if any member has one.
  none.termination = Termination::kLimit;
  ASSIGN_OR_RETURN(const std::vector<Strategy> members,
                   RunMembers(problem, options, context, incumbents, none, outcome));
  // Whoever asked judges the answers once more.
  for (const auto* answer : {&incumbents.best(), &incumbents.sequential()}) {
    if (answer->has_value()) context.Spend(WorkOfJudging(**answer));
  }
  Nanos bound = 0;
  const auto optimal = [&] {
    return incumbents.best().has_value() && incumbents.best_time() <= bound;
  };
  if (!context.Expired()) {
    outcome.lower_bound = context.lower_bound;
    if (!outcome.lower_bound.has_value()) {
      outcome.lower_bound = LowerBound(
          *problem.graph, *whole.operators, *problem.cluster, *problem.costs, problem.mini_batch,
          {problem.optimizer, /*asynchronous=*/false, problem.optimizer_sharding});
    }
    bound = *outcome.lower_bound;
  }
  const bool whole_stages = HasWholeStages(problem);
  const bool possible =
      !whole_stages || options.micro_batch == 0 || options.micro_batch == problem.mini_batch;
  PlanOptions drawn = options;
  if (whole_stages) drawn.micro_batch = problem.mini_batch;  // Moves looks after its devices.
  if (!optimal() && possible && !context.Expired()) {
    std::vector<Draft> drafts;
    for (const Strategy& strategy : members) {
      if (auto draft = ToDraft(problem, strategy)) drafts.push_back(*std::move(draft));
    }
    const SearchContext part(context, PartOfWork(context, whole_stages ? kWithWholeStages : 1));
    DraftSearch search(problem, drawn, part, drafts, incumbents);
    RETURN_IF_ERROR(search.Run(bound, /*polish=*/alone && !whole_stages));
    if (alone && !whole_stages) {
      RETURN_IF_ERROR(ConsiderOtherSizes(problem, options, context, bound, search, incumbents));
      RETURN_IF_ERROR(SearchAgain(problem, options, context, bound, drafts, incumbents, outcome));
    }
    outcome.states += search.states();
  }
  if (whole_stages && !optimal() && !context.Expired()) {
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
