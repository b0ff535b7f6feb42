// The portfolio and its own search.
//
// Problem: the strategy with the least iteration time over everything that the evaluator accepts:
// stages on the DAG, several stages per device (loops), replicas, micro-batch sizes, recomputation,
// and any compute order, with whole or split backward passes.
//
// Method.
//  1. Members. The other planners run, cheap ones first, each with a share of the time. Each answer
//     is judged by the evaluator.
//  2. Starts. Drafts with loops on DAG stages (search/starts.h), and the members' answers as
//  drafts,
//     are rated by the list schedule (search/list_schedule.h).
//  3. Local search. The best starts of different kinds are improved (search/polish.h) by successive
//     halving of their number; once for graph pipelines, once for sequential ones. A sequential
//     pipeline without its chain edges is a graph pipeline that is no slower, so it is a start as
//     well.
//  4. Judgement. What comes out goes to the evaluator. Where that finds more memory in use than the
//     list schedule thought, the draft is scheduled again with less.
//
// The budget counts scheduled passes, so that equal problems have equal answers; a deadline of
// kTimeLimit, or the caller's, cuts in where problems are large.
//
// Termination is kOptimal only if the iteration time equals the lower bound of the evaluator.
#include "planner_service/planners/auto/auto.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner_service/evaluator/lower_bound.h"
#include "planner_service/planners/auto/champions.h"
#include "planner_service/planners/auto/members.h"
#include "planner_service/search/polish.h"
#include "planner_service/search/starts.h"

namespace stagewright {
namespace {

using Clock = SearchContext::Clock;

constexpr std::chrono::milliseconds kTimeLimit(4000);
constexpr double kMembersShare = 0.5;  // Of the time, all members together.

// Scheduled passes of one search over graph pipelines, and for the rating of its starts; sequential
// ones have a third.
constexpr int64_t kBudget = 6'000'000;
constexpr int64_t kStartsBudget = 2'000'000;
// Schedules of one search: small problems are done earlier.
constexpr int64_t kMostSchedules = 4'000;
// Drafts with more passes are not looked at: one schedule would take too long.
constexpr int64_t kMostPasses = 60'000;
constexpr size_t kKeptStarts = 8;
// Of these, at most so many with one micro-batch size and number of replicas.
constexpr int32_t kAlike = 2;
// Shares of the memory for drafts that need more than the list schedule thought.
constexpr double kMemoryShares[] = {1, 0.95, 0.88, 0.78, 0.6};

class Search {
 public:
  Search(const Problem& problem, const PlanOptions& options, SearchContext& context)
      : problem_(problem),
        options_(options),
        outer_(context),
        start_(Clock::now()),
        context_(context, start_ + kTimeLimit),
        champions_(problem, options, context) {}

  absl::StatusOr<Outcome> Solve() {
    RETURN_IF_ERROR(RunMembers());
    if (!context_.Expired()) {
      bound_ = LowerBound(*problem_.graph, *problem_.operators, *problem_.cluster, *problem_.costs,
                          problem_.mini_batch, {problem_.optimizer, options_.asynchronous});
    }
    if (!options_.asynchronous && !Done()) RETURN_IF_ERROR(SearchDrafts());
    return Conclude();
  }

 private:
  bool Optimal() const { return champions_.best().has_value() && champions_.best_time() <= bound_; }
  bool Done() const { return Optimal() || context_.Expired(); }

  absl::Status RunMembers() {
    const auto limit =
        start_ + std::chrono::duration_cast<Clock::duration>(kTimeLimit * kMembersShare);
    for (const AutoMember& member : AutoMembers(problem_, options_)) {
      if (Done()) break;
      const auto share = std::chrono::duration_cast<Clock::duration>(kTimeLimit * member.share);
      SearchContext context(context_, std::min(limit, Clock::now() + share));
      absl::StatusOr<Outcome> outcome = member.planner->Solve(problem_, options_, context);
      if (!outcome.ok()) {  // Its conformance suite says so, too; the others go on.
        reason_ = absl::StrCat(member.planner->name(), ": ", outcome.status().message());
        continue;
      }
      outcome_.states += outcome->states;
      outcome_.candidates += outcome->candidates;
      if (!outcome->strategy.has_value()) {
        if (outcome->termination == Termination::kInfeasible) reason_ = outcome->reason;
        continue;
      }
      RETURN_IF_ERROR(champions_.Offer(*outcome->strategy).status());
      if (auto draft = ToDraft(problem_, *outcome->strategy)) found_.push_back(*std::move(draft));
    }
    return absl::OkStatus();
  }

  absl::Status SearchDrafts() {
    const OperatorCosts costs(problem_);
    Polisher polisher(costs, options_, context_);
    Dice dice(options_.seed);
    std::vector<RatedDraft> sequential =
        Improved(costs, polisher, StrategyKind::kSequential, {}, kBudget / 3, dice);
    RETURN_IF_ERROR(Judge(polisher, sequential));
    if (!options_.sequential && !Done()) {
      const std::vector<RatedDraft> graph =
          Improved(costs, polisher, StrategyKind::kGraph, sequential, kBudget, dice);
      RETURN_IF_ERROR(Judge(polisher, graph));
    }
    outcome_.states += polisher.states();
    return absl::OkStatus();
  }

  // The best drafts of a kind, best first.
  std::vector<RatedDraft> Improved(const OperatorCosts& costs, Polisher& polisher,
                                   StrategyKind kind, const std::vector<RatedDraft>& more,
                                   int64_t budget, Dice& dice) {
    std::vector<RatedDraft> drafts = Varied(RatedStarts(costs, polisher, kind, more));
    budget = std::min(budget, kMostSchedules * PassesOf(drafts));
    // Half of the drafts go on to the next round, which has as much time for all of them.
    int32_t rounds = 1;
    while ((size_t{1} << (rounds - 1)) < drafts.size()) ++rounds;
    for (size_t going = drafts.size(); going > 0; going /= 2) {
      for (size_t i = 0; i < going && !context_.Expired(); ++i) {
        drafts[i] = polisher.Improve(std::move(drafts[i]),
                                     budget / rounds / static_cast<int64_t>(going), dice);
      }
      Sort(drafts);
      if (going == 1) break;
    }
    return drafts;
  }

  // The best of each kind.
  static std::vector<RatedDraft> Varied(std::vector<RatedDraft> drafts) {
    std::map<std::pair<int64_t, size_t>, int32_t> alike;
    std::vector<RatedDraft> kept;
    for (RatedDraft& rated : drafts) {
      size_t replicas = 0;
      for (const DraftStage& stage : rated.draft.stages) {
        replicas = std::max(replicas, stage.devices.size());
      }
      if (kept.size() == kKeptStarts) break;
      if (++alike[{rated.draft.micro_batch, replicas}] > kAlike) continue;
      kept.push_back(std::move(rated));
    }
    return kept;
  }

  // Starts, best first. All of them are rated by a few rules, the most promising by all.
  std::vector<RatedDraft> RatedStarts(const OperatorCosts& costs, Polisher& polisher,
                                      StrategyKind kind, const std::vector<RatedDraft>& more) {
    std::vector<Draft> drafts;
    for (const Draft& draft : found_) {
      if (draft.kind == kind || kind == StrategyKind::kGraph || draft.stages.size() == 1) {
        drafts.push_back(draft);
        drafts.back().kind = kind;
      }
    }
    for (const RatedDraft& rated : more) {
      drafts.push_back(rated.draft);
      drafts.back().kind = kind;
    }
    std::vector<RatedDraft> rated;
    const int64_t first = polisher.passes();
    const auto rate = [&](Draft draft) {
      if (context_.Expired() || Passes(draft) > kMostPasses) return;
      auto quick = polisher.Rate(draft, /*quick=*/true);
      if (!quick.has_value() && options_.recompute == RecomputePolicy::kAllowed) {
        for (DraftStage& stage : draft.stages) stage.recompute = true;
        quick = polisher.Rate(std::move(draft), /*quick=*/true);
      }
      if (quick.has_value()) rated.push_back(*std::move(quick));
    };
    for (Draft& draft : drafts) rate(std::move(draft));
    for (Draft& draft : StartDrafts(costs, options_, kind, context_)) {
      if (polisher.passes() - first > kStartsBudget) break;
      rate(std::move(draft));
    }
    Sort(rated);
    if (rated.size() > 4 * kKeptStarts) rated.resize(4 * kKeptStarts);
    for (RatedDraft& draft : rated) {
      if (context_.Expired()) break;
      if (auto full = polisher.Rate(draft.draft, /*quick=*/false)) draft = *std::move(full);
    }
    Sort(rated);
    return rated;
  }

  // Until one is accepted, best first.
  absl::Status Judge(Polisher& polisher, const std::vector<RatedDraft>& drafts) {
    for (const RatedDraft& draft : drafts) {
      for (double share : kMemoryShares) {
        if (outer_.Expired()) break;
        polisher.set_memory_share(share);
        std::optional<RatedDraft> again = draft;
        if (share < 1) again = polisher.Rate(draft.draft, /*quick=*/true);
        if (!again.has_value()) break;
        const Strategy strategy = polisher.ToStrategy(*again);
        polisher.set_memory_share(1);
        ASSIGN_OR_RETURN(const bool accepted, champions_.Offer(strategy));
        if (accepted) return absl::OkStatus();
      }
      polisher.set_memory_share(1);
    }
    return absl::OkStatus();
  }

  int64_t Passes(const Draft& draft) const {
    int64_t units = 0;
    for (const DraftStage& stage : draft.stages) {
      units += static_cast<int64_t>(stage.devices.size());
    }
    return 3 * units * (problem_.mini_batch / draft.micro_batch);
  }

  int64_t PassesOf(const std::vector<RatedDraft>& drafts) const {
    int64_t most = 1;
    for (const RatedDraft& rated : drafts) most = std::max(most, Passes(rated.draft));
    return most;
  }

  static void Sort(std::vector<RatedDraft>& drafts) {
    std::stable_sort(drafts.begin(), drafts.end(), [](const RatedDraft& a, const RatedDraft& b) {
      return a.estimate < b.estimate;
    });
  }

  Outcome Conclude() {
    outcome_.candidates += champions_.judged();
    outcome_.strategy = champions_.best();
    outcome_.sequential = champions_.sequential();
    if (Optimal()) {
      outcome_.termination = Termination::kOptimal;
    } else if (outer_.Expired()) {
      outcome_.termination = Termination::kLimit;
      outcome_.reason = "the search was stopped by its deadline or cancelled";
    } else if (outcome_.strategy.has_value()) {
      outcome_.termination = Termination::kFeasible;
    } else {
      outcome_.reason = reason_.empty() ? champions_.rejection() : reason_;
    }
    return std::move(outcome_);
  }

  const Problem& problem_;
  const PlanOptions& options_;
  SearchContext& outer_;
  const Clock::time_point start_;
  SearchContext context_;
  Champions champions_;
  Nanos bound_ = 0;           // Known once the members have run.
  std::vector<Draft> found_;  // Members' answers.
  std::string reason_;        // Why members found nothing.
  Outcome outcome_;
};

class AutoPlanner : public Planner {
 public:
  std::string name() const override { return "auto"; }
  std::string description() const override {
    return "all planners that fit, then looped stages on the model's DAG improved by local search";
  }
  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext& context) const override {
    return Search(problem, options, context).Solve();
  }
};

}  // namespace

std::unique_ptr<Planner> MakeAutoPlanner() { return std::make_unique<AutoPlanner>(); }

}  // namespace stagewright
