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
#include "planner_service/planners/auto/member_runs.h"
#include "planner_service/planners/auto/other_sizes.h"
#include "planner_service/planners/auto/second_search.h"
#include "planner_service/planners/auto/whole_stages.h"
#include "planner_service/search/merged_operators.h"
#include "planner_service/search/why_not.h"

namespace stagewright {
namespace {

// The part of the work that is left which may go to the search without nodes that need the whole
// mini-batch.
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

}  // namespace

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

namespace {

// One search, from the quick members to its answer.
class Portfolio {
 public:
  // `whole` has all operators, `problem` maybe fewer.
  Portfolio(const Problem& whole, const Problem& problem, const PlanOptions& options,
            SearchContext& context)
      : whole_(whole),
        problem_(problem),
        options_(options),
        context_(context),
        alone_(context.WorkLeft().count() >= WithEffort(options, kMostWork.count())),
        whole_stages_(HasWholeStages(problem)),
        incumbents_(problem, options, context),
        members_(problem, options, context, incumbents_) {}

  absl::Status Run() {
    RETURN_IF_ERROR(members_.RunQuick(outcome_));
    if (!context_.Expired()) FindBound();
    RETURN_IF_ERROR(whole_stages_ ? SearchWholeBatches() : SearchMicroBatches());
    if (!context_.Expired()) RETURN_IF_ERROR(incumbents_.DropIdleRecomputation());
    outcome_.candidates += incumbents_.judged();
    return absl::OkStatus();
  }

  const std::vector<Strategy>& accepted() const { return incumbents_.accepted(); }

  Outcome Answer() {
    WarnOfIdleDevices(incumbents_, outcome_);
    outcome_.strategy = incumbents_.best();
    outcome_.sequential = incumbents_.sequential();
    if (IsOptimal()) {
      outcome_.termination = Termination::kOptimal;
    } else if (context_.Stopped()) {
      SayStopped(outcome_);
    } else if (outcome_.strategy.has_value()) {
      outcome_.termination = Termination::kFeasible;
    } else if (!IsPossible() && incumbents_.judged() == 0) {
      outcome_.termination = Termination::kLimit;
      outcome_.reason = absl::StrCat("a micro_batch of ", options_.micro_batch,
                                     " is asked for, and every stage has such a node");
    } else {
      SayNoneFound(problem_, options_, incumbents_, members_.none(), outcome_);
    }
    return std::move(outcome_);
  }

 private:
  bool IsOptimal() const {
    return incumbents_.best().has_value() && incumbents_.best_time() <= bound_;
  }
  bool IsOver() const { return IsOptimal() || context_.Expired(); }
  // The options leave a stage with a node that needs the whole mini-batch what it needs.
  bool IsPossible() const {
    return !whole_stages_ || options_.micro_batch == 0 ||
           options_.micro_batch == problem_.mini_batch;
  }

  void FindBound() {
    bound_ =
        context_.lower_bound.has_value()
            ? *context_.lower_bound
            : LowerBound(*problem_.graph, *whole_.operators, *problem_.cluster, *problem_.costs,
                         problem_.mini_batch,
                         {problem_.optimizer, /*asynchronous=*/false, problem_.optimizer_sharding});
    outcome_.lower_bound = bound_;
  }

  absl::Status RunMembers() {
    RETURN_IF_ERROR(members_.RunAll(outcome_));
    // Whoever asked judges the answers once more.
    for (const auto* answer : {&incumbents_.best(), &incumbents_.sequential()}) {
      if (answer->has_value()) context_.Spend(WorkOfJudging(**answer));
    }
    for (const Strategy& strategy : members_.found()) {
      if (auto draft = ToDraft(problem_, strategy)) drafts_.push_back(*std::move(draft));
    }
    return absl::OkStatus();
  }

  absl::Status SearchMicroBatches() {
    if (IsOver()) return RunMembers();
    DraftSearch search(problem_, options_, context_, drafts_, incumbents_);
    if (alone_) RETURN_IF_ERROR(search.LookAhead());
    RETURN_IF_ERROR(RunMembers());
    if (IsOver()) return absl::OkStatus();
    RETURN_IF_ERROR(search.Run(bound_, /*polish=*/alone_));
    if (alone_) {
      RETURN_IF_ERROR(
          ConsiderOtherSizes(problem_, options_, context_, bound_, search, incumbents_));
      RETURN_IF_ERROR(
          SearchAgain(problem_, options_, context_, bound_, drafts_, incumbents_, outcome_));
    }
    outcome_.states += search.states();
    return absl::OkStatus();
  }

  absl::Status SearchWholeBatches() {
    RETURN_IF_ERROR(RunMembers());
    if (IsPossible() && !IsOver()) {
      PlanOptions drawn = options_;
      drawn.micro_batch = problem_.mini_batch;  // Moves looks after its devices.
      const SearchContext part(context_, PartOfWork(context_, kWithWholeStages));
      DraftSearch search(problem_, drawn, part, drafts_, incumbents_);
      RETURN_IF_ERROR(search.Run(bound_, /*polish=*/false));
      outcome_.states += search.states();
    }
    if (IsOver()) return absl::OkStatus();
    return ConsiderWholeStages(problem_, options_, context_, incumbents_, outcome_);
  }

  const Problem& whole_;
  const Problem& problem_;
  const PlanOptions& options_;
  SearchContext& context_;
  // A search that shares its work with others leaves them what it does not need.
  const bool alone_;
  const bool whole_stages_;
  Incumbents incumbents_;
  MemberRuns members_;
  std::vector<Draft> drafts_;  // All members' answers.
  Nanos bound_ = 0;
  Outcome outcome_;
};

}  // namespace

absl::StatusOr<Outcome> SolveSynchronous(const Problem& whole, const PlanOptions& options,
                                         SearchContext& context, std::vector<Strategy>* found) {
  const std::optional<OperatorGraph> fewer = FewerOperators(whole);
  Problem problem = whole;
  if (fewer.has_value()) problem.operators = &*fewer;
  Portfolio portfolio(whole, problem, options, context);
  RETURN_IF_ERROR(portfolio.Run());
  if (found != nullptr) *found = portfolio.accepted();
  return portfolio.Answer();
}

}  // namespace stagewright
