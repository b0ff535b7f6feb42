#include "planner_service/planners/auto/draft_search.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "common/graph/series_parallel.h"
#include "planner_service/planners/auto/effort.h"
#include "planner_service/search/memory_shares.h"
#include "planner_service/search/starts.h"

namespace stagewright {
namespace {

// Work of list schedules (ListResult::work) in one search over graph pipelines; over sequential
// ones a sixth. Twenty million take about a second.
constexpr int64_t kBudget = 35'000'000;
// Work of rating the starts of a search: by a few rules, and by all.
constexpr int64_t kStartsBudget = 8'000'000;
constexpr int64_t kRatingBudget = 5'000'000;
// Schedules of one search: small problems are done earlier.
constexpr int64_t kMostSchedules = 20'000;
// Operators times devices above which the same work takes longer, and there is less.
constexpr int64_t kLarge = 200'000;
// On more devices one schedule takes so long that those of chains, and of what others have found,
// would leave no work for graphs.
constexpr int32_t kManyDevices = 64;
// Drafts with more passes are not looked at: one schedule would take too long.
constexpr int64_t kMostPasses = 60'000;
// Operators that are laid out, over all shapes of starts.
constexpr int64_t kLaidOut = 1'000'000;
// The effort that the evaluator may spend on the starts of a search and on what it finds, and its
// effort for each pass or message of a schedule.
constexpr int64_t kJudgingEffort = 600'000;
constexpr int64_t kEffortOfPass = 3;
constexpr Nanos kWorkOfBudgetedJudging = 400 * kMillisecond;
// The parts of the work that is left which rating the starts of a search may take, of sequential
// pipelines and of graphs, and of that laying them out.
constexpr double kRatingChains = 0.35;
constexpr double kRatingGraphs = 0.7;
constexpr double kLayingOut = 0.7;
// What rating them takes of that where members have yet to run.
constexpr double kAhead = 0.55;
// Promises of starts that differ by less count as equal.
constexpr double kAsGood = 0.005;
// Starts that the evaluator judges, and of these that are improved.
constexpr size_t kJudgedStarts = 16;
constexpr size_t kKeptStarts = 8;
// At most so many kept starts have one micro-batch size and number of replicas.
constexpr int32_t kAlike = 2;
// Local search goes in so many bursts at most, and what each finds is judged, so that errors of the
// estimate are not what it gathers. A burst is long against the judgement: by this much work for
// every replica's micro-batch.
constexpr int64_t kBursts = 16;
constexpr int64_t kBurst = 600;
// The bursts' first thresholds over the current estimate, in turn: low ones refine, high ones leave
// the neighbourhood.
constexpr double kThresholds[] = {0.012, 0.05, 0.1, 0.2};

// Work of list schedules in polishing graphs by moves that change equal branches alike, all of its
// work with some to spare for what comes after, the share of it below which there is none, the
// number of drafts, and the bursts' thresholds over those of the search before.
constexpr int64_t kPolishing = 16'000'000;
constexpr Nanos kWorkOfPolishing = 900 * kMillisecond;
constexpr double kLeastPolishing = 0.3;
constexpr size_t kPolished = 4;
constexpr double kPolishingHeat = 0.5;

// Work of list schedules in one round of Extend, all of its work, the share of that below which
// there is none, and the number of drafts.
constexpr int64_t kExtension = 16'000'000;
constexpr Nanos kWorkOfExtension = 900 * kMillisecond;
constexpr double kLeastExtension = 0.3;
constexpr size_t kExtended = 4;

// Whether a graph of stages can be nothing but a sequence.
bool IsChain(const Dag& operators) {
  const SpTree tree = Decompose(operators);
  return std::none_of(tree.vertices.begin(), tree.vertices.end(),
                      [](const SpTree::Vertex& v) { return v.kind == SpTree::Kind::kParallel; });
}

double ShareOfRating(StrategyKind kind) {
  return kind == StrategyKind::kGraph ? kRatingGraphs : kRatingChains;
}

void SortByEstimate(std::vector<RatedDraft>& rated) {
  std::stable_sort(rated.begin(), rated.end(), [](const RatedDraft& a, const RatedDraft& b) {
    return a.estimate < b.estimate;
  });
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
      random_(options.seed) {
  local_search_.set_most_passes(kMostPasses);
}

// Large problems have no search of chains anyway, and work for little else.
bool DraftSearch::OnManyDevices() const {
  return Size() <= kLarge && problem_.cluster->size() > kManyDevices;
}

void DraftSearch::SearchWidely() {
  wide_ = true;
  local_search_.set_wide(true);
}

absl::Status DraftSearch::LookAhead() {
  if (Size() > kLarge) return absl::OkStatus();  // It would take from the members' work.
  const bool chains = options_.sequential || IsChain(problem_.operators->dag());
  const StrategyKind kind = chains ? StrategyKind::kSequential : StrategyKind::kGraph;
  ShareOut(WorkOf(kind, kBudget));
  const SearchContext rating(context_, PartOfWork(context_, kAhead * ShareOfRating(kind)));
  std::set<Draft> known;
  RateLayouts(kind, rating, local_search_.passes(), known, rated_ahead_);
  RateFully(rating, rated_ahead_);
  ahead_ = kind;
  return JudgedStarts(rated_ahead_).status();
}

absl::Status DraftSearch::Run(Nanos bound, bool polish) {
  const bool chain = IsChain(problem_.operators->dag());
  const bool both = !options_.sequential && !chain;
  const int64_t first = chain ? kBudget : kBudget / 6;
  std::vector<Candidate> sequential;
  // Where there is hardly work for graphs, what the members know of chains has to do.
  if (!both || (Size() <= kLarge && !OnManyDevices())) {
    ShareOut(WorkOf(StrategyKind::kSequential, first) +
             (both ? WorkOf(StrategyKind::kGraph, kBudget) : Nanos(0)));
    ASSIGN_OR_RETURN(sequential, Improved(StrategyKind::kSequential, {}, first));
  }
  const auto optimal = [&] {
    return incumbents_.best().has_value() && incumbents_.best_time() <= bound;
  };
  if (!both || optimal() || context_.Expired()) return absl::OkStatus();
  ShareOut(WorkOf(StrategyKind::kGraph, kBudget));
  ASSIGN_OR_RETURN(std::vector<Candidate> graphs,
                   Improved(StrategyKind::kGraph, sequential, kBudget));
  return polish && !optimal() ? Polish(std::move(graphs)) : absl::OkStatus();
}

// Nothing before it has less work or other draws for it, and what it has to beat is what the answer
// would be without: by the judgement of the search, the answer only gets faster.
absl::Status DraftSearch::Polish(std::vector<Candidate> drafts) {
  if (!local_search_.HasAlike() || context_.Expired()) return absl::OkStatus();
  RETURN_IF_ERROR(incumbents_.DropIdleRecomputation());
  ShareOut(kWorkOfPolishing);
  if (share_ < kLeastPolishing) return absl::OkStatus();
  if (drafts.size() > kPolished) drafts.resize(kPolished);
  local_search_.set_alike(true);
  heat_ = kPolishingHeat;
  random_ = RandomSource(options_.seed);
  return Halve(kPolishing, drafts);
}

absl::Status DraftSearch::Extend(std::vector<Draft> starts, uint64_t seed) {
  ShareOut(kWorkOfExtension);
  if (share_ < kLeastExtension) return absl::OkStatus();
  local_search_.set_alike(false);
  heat_ = 1;
  random_ = RandomSource(seed);
  std::vector<RatedDraft> rated;
  std::set<Draft> known;
  for (Draft& draft : starts) {
    if (known.insert(draft).second) RateQuickly(std::move(draft), rated);
  }
  RateFully(context_, rated);
  ASSIGN_OR_RETURN(std::vector<Candidate> drafts, JudgedStarts(std::move(rated)));
  drafts = Varied(std::move(drafts));
  if (drafts.size() > kExtended) drafts.resize(kExtended);
  return Halve(kExtension, drafts);
}

// The work of searching with these budgets, where all of them are used up.
Nanos DraftSearch::WorkOf(StrategyKind kind, int64_t budget) const {
  const int64_t layouts = ahead_ == kind ? 0 : kStartsBudget;
  return work::kListPass * (layouts + kRatingBudget + budget) + kWorkOfBudgetedJudging;
}

// What is left of the work, over what the budgets come to.
void DraftSearch::ShareOut(Nanos all) {
  const double wanted = static_cast<double>(all) * options_.effort;
  share_ = std::min(1.0, static_cast<double>(context_.WorkLeft()) / wanted);
}

int64_t DraftSearch::Budget(int64_t work) const {
  return static_cast<int64_t>(share_ * static_cast<double>(WithEffort(options_, work)));
}

void DraftSearch::Sort(std::vector<Candidate>& candidates) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.time < b.time; });
}

// The best of each kind.
std::vector<DraftSearch::Candidate> DraftSearch::Varied(std::vector<Candidate> candidates) {
  std::map<std::pair<int64_t, size_t>, int32_t> alike;
  std::vector<Candidate> kept;
  for (Candidate& candidate : candidates) {
    const Draft& draft = candidate.rated.draft;
    size_t replicas = 0;
    for (const DraftStage& stage : draft.stages) {
      replicas = std::max(replicas, stage.devices.size());
    }
    if (kept.size() == kKeptStarts) break;
    if (++alike[{draft.micro_batch, replicas}] > kAlike) continue;
    kept.push_back(std::move(candidate));
  }
  return kept;
}

// The best drafts of a kind, best first, each judged if it promises anything.
absl::StatusOr<std::vector<DraftSearch::Candidate>> DraftSearch::Improved(
    StrategyKind kind, const std::vector<Candidate>& more, int64_t budget) {
  ASSIGN_OR_RETURN(std::vector<Candidate> drafts, JudgedStarts(RatedStarts(kind, more)));
  drafts = Varied(std::move(drafts));
  RETURN_IF_ERROR(Halve(budget, drafts));
  return drafts;
}

// Local search from all drafts, with more for the best of them, which come first.
absl::Status DraftSearch::Halve(int64_t budget, std::vector<Candidate>& drafts) {
  int64_t most = 1;
  for (const Candidate& candidate : drafts) most = std::max(most, Passes(candidate.rated.draft));
  budget = Budget(std::min(budget, kMostSchedules * most));
  if (Size() > kLarge) budget = budget / Size() * kLarge;
  // Half of the drafts go on to the next round, which has as much effort for all of them.
  int32_t rounds = 1;
  while ((size_t{1} << (rounds - 1)) < drafts.size()) ++rounds;
  const SearchContext judging(context_, Budget(kJudgingEffort));
  for (size_t going = drafts.size(); going > 0; going /= 2) {
    for (size_t i = 0; i < going && !context_.Expired(); ++i) {
      RETURN_IF_ERROR(Improve(budget / rounds / static_cast<int64_t>(going), judging, drafts[i]));
    }
    Sort(drafts);
    if (going == 1) break;
  }
  return absl::OkStatus();
}

// Local search in bursts that go on from the best draft as the evaluator sees it.
absl::Status DraftSearch::Improve(int64_t budget, const SearchContext& judging,
                                  Candidate& candidate) {
  const int64_t burst = kBurst * Passes(candidate.rated.draft) / 3;
  const int64_t bursts = std::clamp(budget / burst, int64_t{1}, WithEffort(options_, kBursts));
  for (int64_t i = 0; i < bursts && !context_.Expired(); ++i) {
    const double threshold = heat_ * kThresholds[i % std::size(kThresholds)];
    RatedDraft next = local_search_.Improve(candidate.rated, budget / bursts, threshold, random_);
    if (next.estimate >= candidate.rated.estimate) continue;
    ASSIGN_OR_RETURN(const std::optional<Nanos> time, Judge(next, judging));
    if (time.has_value() && *time < candidate.time) candidate = {std::move(next), *time};
  }
  return absl::OkStatus();
}

// The most promising starts as the evaluator sees them, best first.
absl::StatusOr<std::vector<DraftSearch::Candidate>> DraftSearch::JudgedStarts(
    std::vector<RatedDraft> starts) {
  const SearchContext judging(context_, Budget(kJudgingEffort));
  std::vector<Candidate> candidates;
  for (RatedDraft& start : starts) {
    const Nanos estimate = start.estimate;
    Candidate candidate{std::move(start), estimate};
    if (candidates.size() < kJudgedStarts && !judging.Expired()) {
      ASSIGN_OR_RETURN(const std::optional<Nanos> time, Judge(candidate.rated, judging));
      if (!time.has_value()) continue;
      candidate.time = *time;
    }
    candidates.push_back(std::move(candidate));
  }
  Sort(candidates);
  return candidates;
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

// By all rules, the best of them first.
void DraftSearch::RateFully(const SearchContext& rating, std::vector<RatedDraft>& rated) {
  SortByEstimate(rated);
  if (rated.size() > 4 * kKeptStarts) rated.resize(4 * kKeptStarts);
  const int64_t first = local_search_.passes();
  for (RatedDraft& draft : rated) {
    if (local_search_.passes() - first > Budget(kRatingBudget) || rating.Expired()) break;
    if (auto full = local_search_.Rate(draft.draft, /*quick=*/false)) draft = *std::move(full);
  }
  SortByEstimate(rated);
}

// Starts of all shapes, the most promising first.
std::vector<Draft> DraftSearch::PromisingStarts(StrategyKind kind, const SearchContext& rating) {
  const SearchContext part(rating, PartOfWork(rating, kLayingOut));
  const SearchContext layouts(
      part, WithEffort(options_, kLaidOut) / std::max(1, problem_.operators->size()));
  std::vector<std::pair<double, Draft>> promising;
  for (Draft& draft :
       StartDrafts(costs_, options_, kind, layouts, kMostPasses / (3 * problem_.cluster->size()),
                   /*with_rest=*/wide_)) {
    if (part.Expired()) break;
    if (Passes(draft) > kMostPasses) continue;
    const std::optional<double> promise = local_search_.Promise(draft);
    if (promise.has_value()) promising.emplace_back(*promise, std::move(draft));
  }
  // What promises about the same in fewer passes comes first.
  const auto key = [&](const std::pair<double, Draft>& start) {
    return std::make_pair(std::floor(std::log(start.first) / kAsGood), Passes(start.second));
  };
  std::stable_sort(promising.begin(), promising.end(),
                   [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::vector<Draft> drafts;
  for (auto& [promise, draft] : promising) drafts.push_back(std::move(draft));
  return drafts;
}

// Layouts, by a few rules, until the schedules since `first` have taken their budget.
void DraftSearch::RateLayouts(StrategyKind kind, const SearchContext& rating, int64_t first,
                              std::set<Draft>& known, std::vector<RatedDraft>& rated) {
  // Half of the effort goes to promising ones, which may have many passes, half to cheap ones.
  std::vector<Draft> starts = PromisingStarts(kind, rating);
  const int64_t effort = Budget(kStartsBudget);
  for (const int64_t most : {effort / 2, effort}) {
    for (const Draft& draft : starts) {
      if (local_search_.passes() - first > most || rating.Expired()) break;
      if (known.insert(draft).second) RateQuickly(draft, rated);
    }
    std::stable_sort(starts.begin(), starts.end(),
                     [&](const Draft& a, const Draft& b) { return Passes(a) < Passes(b); });
  }
}

// Starts, best first. All of them are rated by a few rules, the most promising by all.
std::vector<RatedDraft> DraftSearch::RatedStarts(StrategyKind kind,
                                                 const std::vector<Candidate>& more) {
  std::vector<Draft> drafts;
  for (const Draft& draft : found_) {
    if (draft.kind == kind || kind == StrategyKind::kGraph || draft.stages.size() == 1) {
      drafts.push_back(draft);
    }
  }
  for (const Candidate& candidate : more) drafts.push_back(candidate.rated.draft);
  std::vector<RatedDraft> rated;
  int64_t first = local_search_.passes();
  std::set<Draft> known;
  for (Draft& draft : drafts) {
    draft.kind = kind;
    if (known.insert(draft).second) RateQuickly(std::move(draft), rated);
  }
  if (OnManyDevices()) first = local_search_.passes();
  const SearchContext rating(context_, PartOfWork(context_, ShareOfRating(kind)));
  if (ahead_ != kind) RateLayouts(kind, rating, first, known, rated);
  RateFully(rating, rated);
  if (ahead_ != kind) return rated;
  for (RatedDraft& start : rated_ahead_) {
    if (known.insert(start.draft).second) rated.push_back(std::move(start));
  }
  SortByEstimate(rated);
  return rated;
}

// The evaluator's time of a draft, scheduled within less where it needs more memory than the list
// schedule thought; nullopt if it is refused.
absl::StatusOr<std::optional<Nanos>> DraftSearch::Judge(const RatedDraft& draft,
                                                        const SearchContext& judging) {
  std::optional<Nanos> time;
  const absl::Status status =
      TryMemoryShares(kDraftShares, [&](double share) -> absl::StatusOr<bool> {
        if (judging.Expired()) return false;
        local_search_.set_memory_share(share);
        std::optional<RatedDraft> again = draft;
        if (share < 1) again = local_search_.Rate(draft.draft, /*quick=*/true);
        if (!again.has_value()) return false;
        const int64_t before = local_search_.passes();
        const Strategy strategy = local_search_.ToStrategy(*again);
        judging.Charge(kEffortOfPass * (local_search_.passes() - before));
        ASSIGN_OR_RETURN(const Verdict verdict, incumbents_.Consider(strategy));
        time = verdict.time;
        return !time.has_value();
      });
  local_search_.set_memory_share(1);
  RETURN_IF_ERROR(status);
  return time;
}

}  // namespace stagewright
