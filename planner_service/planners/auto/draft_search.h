// Starts and local search over drafts: what "auto" does on its own.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "planner_service/models/operator_costs.h"
#include "planner_service/planner/planner.h"
#include "planner_service/planners/auto/incumbents.h"
#include "planner_service/search/local_search.h"

namespace stagewright {

// Budgets count scheduled passes and judged strategies, so that equal problems have equal answers
// on machines of any speed; only the context cuts in by the clock.
class DraftSearch {
 public:
  // `found`: drafts of other planners to start from as well. All outlive the search.
  DraftSearch(const Problem& problem, const PlanOptions& options, const SearchContext& context,
              const std::vector<Draft>& found, Incumbents& incumbents);

  // Before Run, and before planners that take long: rates starts of the kind that most of the
  // search is about, and offers the incumbents the most promising. Run goes on with them. Nothing
  // where the problem is large.
  absl::Status LookAhead();

  // Offers the incumbents the best drafts of sequential pipelines, then of graphs unless the
  // options forbid them: the most promising starts, and what local search makes of the best; with
  // `polish` also by changing equal branches alike, in work that is left then. Ends early once the
  // best incumbent takes no longer than `bound`.
  absl::Status Run(Nanos bound, bool polish);

  // After Run, in work that is left: local search from the best of these, with draws of `seed`.
  absl::Status Extend(std::vector<Draft> starts, uint64_t seed);

  // Before Run: from other starts (StartDrafts with a rest), to neighbours of Moves::ChangeWidely.
  void SearchWidely();

  int64_t states() const { return local_search_.states(); }  // Schedules made.

 private:
  struct Candidate {
    RatedDraft rated;
    Nanos time = 0;  // The evaluator's; the estimate if there was no effort left to ask.
  };

  Nanos WorkOf(StrategyKind kind, int64_t budget) const;
  void ShareOut(Nanos all);
  int64_t Budget(int64_t work) const;
  // Operators times devices.
  int64_t Size() const { return int64_t{costs_.size()} * problem_.cluster->size(); }
  bool OnManyDevices() const;
  absl::StatusOr<std::vector<Candidate>> Improved(StrategyKind kind,
                                                  const std::vector<Candidate>& more,
                                                  int64_t budget);
  std::vector<RatedDraft> RatedStarts(StrategyKind kind, const std::vector<Candidate>& more);
  void RateLayouts(StrategyKind kind, const SearchContext& rating, int64_t first,
                   std::set<Draft>& known, std::vector<RatedDraft>& rated);
  std::vector<Draft> PromisingStarts(StrategyKind kind, const SearchContext& rating);
  void RateQuickly(Draft draft, std::vector<RatedDraft>& rated);
  void RateFully(const SearchContext& rating, std::vector<RatedDraft>& rated);
  absl::StatusOr<std::vector<Candidate>> JudgedStarts(std::vector<RatedDraft> starts);
  absl::Status Halve(int64_t budget, std::vector<Candidate>& drafts);
  absl::Status Polish(std::vector<Candidate> drafts);
  absl::Status Improve(int64_t budget, const SearchContext& judging, Candidate& candidate);
  absl::StatusOr<std::optional<Nanos>> Judge(const RatedDraft& draft, const SearchContext& judging);
  static void Sort(std::vector<Candidate>& candidates);
  static std::vector<Candidate> Varied(std::vector<Candidate> candidates);
  int64_t Passes(const Draft& draft) const { return PassesOf(problem_, draft); }

  const Problem& problem_;
  const PlanOptions& options_;
  const SearchContext& context_;
  const std::vector<Draft>& found_;
  Incumbents& incumbents_;
  const OperatorCosts costs_;
  LocalSearch local_search_;
  RandomSource random_;
  bool wide_ = false;
  std::optional<StrategyKind> ahead_;  // The kind that LookAhead() has rated.
  std::vector<RatedDraft> rated_ahead_;
  double heat_ = 1;   // Thresholds over kThresholds.
  double share_ = 1;  // The share of all budgets that there is work left for.
};

}  // namespace stagewright
