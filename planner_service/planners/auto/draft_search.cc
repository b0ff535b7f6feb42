#include "planner_service/planners/auto/draft_search.h"

#include <algorithm>
#include <map>
#include <utility>

#include "planner_service/search/memory_shares.h"
#include "planner_service/search/starts.h"

namespace stagewright {
namespace {

// Scheduled passes of one search over graph pipelines; sequential ones have a third. Ten million
// take about a second.
constexpr int64_t kBudget = 6'000'000;
// Passes for rating the starts of a search: by a few rules, and by all.
constexpr int64_t kStartsBudget = 2'000'000;
constexpr int64_t kRatingBudget = 3'000'000;
// Schedules of one search: small problems are done earlier.
constexpr int64_t kMostSchedules = 4'000;
// Drafts with more passes are not looked at: one schedule would take too long.
constexpr int64_t kMostPasses = 60'000;
// Operators that are laid out, over all shapes of starts.
constexpr int64_t kLaidOut = 400'000;
// The effort that the evaluator may spend on each kind of pipeline (EffortOfJudging).
constexpr int64_t kJudgingEffort = 600'000;
constexpr size_t kKeptStarts = 8;
// At most so many kept starts have one micro-batch size and number of replicas.
constexpr int32_t kAlike = 2;

void Sort(std::vector<RatedDraft>& drafts) {
  std::stable_sort(drafts.begin(), drafts.end(), [](const RatedDraft& a, const RatedDraft& b) {
    return a.estimate < b.estimate;
  });
}

// The best of each kind.
std::vector<RatedDraft> Varied(std::vector<RatedDraft> drafts) {
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

}  // namespace

DraftSearch::DraftSearch(const Problem& problem, const PlanOptions& options,
                         const SearchContext& context, const std::vector<Draft>& found,
                         Incumbents& incumbents)
    : problem_(problem),
      options_(options),
      context_(context),
      found_(found),
      incumbents_(incumbents),
      costs_(problem),
      local_search_(costs_, options_, context_),
      random_(options.seed) {}

absl::Status DraftSearch::Run(Nanos bound) {
  const std::vector<RatedDraft> sequential = Improved(StrategyKind::kSequential, {}, kBudget / 3);
  RETURN_IF_ERROR(Judge(sequential));
  const bool optimal = incumbents_.best().has_value() && incumbents_.best_time() <= bound;
  if (options_.sequential || optimal || context_.Expired()) return absl::OkStatus();
  return Judge(Improved(StrategyKind::kGraph, sequential, kBudget));
}

// The best drafts of a kind, best first.
std::vector<RatedDraft> DraftSearch::Improved(StrategyKind kind,
                                              const std::vector<RatedDraft>& more, int64_t budget) {
  std::vector<RatedDraft> drafts = Varied(RatedStarts(kind, more));
  budget = std::min(budget, kMostSchedules * PassesOf(drafts));
  // Half of the drafts go on to the next round, which has as much effort for all of them.
  int32_t rounds = 1;
  while ((size_t{1} << (rounds - 1)) < drafts.size()) ++rounds;
  for (size_t going = drafts.size(); going > 0; going /= 2) {
    for (size_t i = 0; i < going && !context_.Expired(); ++i) {
      drafts[i] = local_search_.Improve(std::move(drafts[i]),
                                        budget / rounds / static_cast<int64_t>(going), random_);
    }
    Sort(drafts);
    if (going == 1) break;
  }
  return drafts;
}

void DraftSearch::RateQuickly(Draft draft, std::vector<RatedDraft>& rated) {
  if (context_.Expired() || Passes(draft) > kMostPasses) return;
  auto quick = local_search_.Rate(draft, /*quick=*/true);
  if (!quick.has_value() && options_.recompute == RecomputePolicy::kAllowed) {
    for (DraftStage& stage : draft.stages) stage.recompute = true;
    quick = local_search_.Rate(std::move(draft), /*quick=*/true);
  }
  if (quick.has_value()) rated.push_back(*std::move(quick));
}

// Starts, best first. All of them are rated by a few rules, the most promising by all.
std::vector<RatedDraft> DraftSearch::RatedStarts(StrategyKind kind,
                                                 const std::vector<RatedDraft>& more) {
  std::vector<Draft> drafts;
  for (const Draft& draft : found_) {
    if (draft.kind == kind || kind == StrategyKind::kGraph || draft.stages.size() == 1) {
      drafts.push_back(draft);
    }
  }
  for (const RatedDraft& rated : more) drafts.push_back(rated.draft);
  std::vector<RatedDraft> rated;
  int64_t first = local_search_.passes();
  for (Draft& draft : drafts) {
    draft.kind = kind;
    RateQuickly(std::move(draft), rated);
  }
  const SearchContext layouts(context_, kLaidOut / std::max(1, problem_.operators->size()));
  for (Draft& draft : StartDrafts(costs_, options_, kind, layouts)) {
    if (local_search_.passes() - first > kStartsBudget) break;
    RateQuickly(std::move(draft), rated);
  }
  Sort(rated);
  if (rated.size() > 4 * kKeptStarts) rated.resize(4 * kKeptStarts);
  first = local_search_.passes();
  for (RatedDraft& draft : rated) {
    if (local_search_.passes() - first > kRatingBudget || context_.Expired()) break;
    if (auto full = local_search_.Rate(draft.draft, /*quick=*/false)) draft = *std::move(full);
  }
  Sort(rated);
  return rated;
}

// Until one is accepted, best first.
absl::Status DraftSearch::Judge(const std::vector<RatedDraft>& drafts) {
  const SearchContext judging(context_, kJudgingEffort);
  bool done = false;
  for (const RatedDraft& draft : drafts) {
    RETURN_IF_ERROR(TryMemoryShares(kDraftShares, [&](double share) -> absl::StatusOr<bool> {
      done = judging.Expired();
      if (done) return false;
      local_search_.set_memory_share(share);
      std::optional<RatedDraft> again = draft;
      if (share < 1) again = local_search_.Rate(draft.draft, /*quick=*/true);
      if (!again.has_value()) return false;
      const Strategy strategy = local_search_.ToStrategy(*again);
      local_search_.set_memory_share(1);
      judging.Charge(EffortOfJudging(strategy));
      ASSIGN_OR_RETURN(done, incumbents_.Consider(strategy));
      return !done;
    }));
    local_search_.set_memory_share(1);
    if (done) break;
  }
  return absl::OkStatus();
}

int64_t DraftSearch::Passes(const Draft& draft) const {
  int64_t units = 0;
  for (const DraftStage& stage : draft.stages) {
    units += static_cast<int64_t>(stage.devices.size());
  }
  return 3 * units * (problem_.mini_batch / draft.micro_batch);
}

int64_t DraftSearch::PassesOf(const std::vector<RatedDraft>& drafts) const {
  int64_t most = 1;
  for (const RatedDraft& rated : drafts) most = std::max(most, Passes(rated.draft));
  return most;
}

}  // namespace stagewright
