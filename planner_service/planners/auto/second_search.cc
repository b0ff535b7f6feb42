// The first search prefers groups of equal size and small steps. Where its draws end in a plan that
// no small step makes faster, the same search with fewer permissions found faster ones: by other
// draws, or since drafts that recompute did not come first where memory binds.
#include "planner_service/planners/auto/second_search.h"

#include <cstdint>

#include "planner_service/planners/auto/draft_search.h"
#include "planner_service/planners/auto/effort.h"

namespace stagewright {
namespace {

// Where recomputation stands open, the first goes without.
constexpr int32_t kSearches = 2;
// The least of the work of an answer that one needs to get anywhere.
constexpr double kLeastWork = 0.25;
// Within this of the bound there is too little to gain.
constexpr double kNearBound = 0.005;
// Seeds that no round of the searches before has.
constexpr uint64_t kOtherDraws = 1'000;

}  // namespace

absl::Status SearchAgain(const Problem& problem, const PlanOptions& options,
                         const SearchContext& context, Nanos bound, const std::vector<Draft>& found,
                         Incumbents& incumbents, Outcome& outcome) {
  // What is to be beaten is what the answer would be without this.
  RETURN_IF_ERROR(incumbents.DropIdleRecomputation());
  const auto near = static_cast<int64_t>((1 + kNearBound) * static_cast<double>(bound.count()));
  const auto least = static_cast<int64_t>(
      kLeastWork * static_cast<double>(WithEffort(options, kMostWork.count())));
  for (int32_t i = 0; i < kSearches; ++i) {
    const bool good = incumbents.best().has_value() && incumbents.best_time().count() <= near;
    if (good || context.Expired() || context.WorkLeft().count() < least) break;
    PlanOptions again = options;
    again.seed += kOtherDraws + static_cast<uint64_t>(i);
    if (i == 0 && options.recompute == RecomputePolicy::kAllowed) {
      again.recompute = RecomputePolicy::kNever;
    }
    DraftSearch search(problem, again, context, found, incumbents);
    search.SearchWidely();
    RETURN_IF_ERROR(search.Run(bound, /*polish=*/false));
    outcome.states += search.states();
  }
  return absl::OkStatus();
}

}  // namespace stagewright
