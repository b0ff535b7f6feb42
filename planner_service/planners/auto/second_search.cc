// The first search prefers groups of equal size and small steps. Where its draws end in a plan that
// no small step makes faster, the same search with fewer permissions found faster ones: by other
// draws, or since there is less to try where memory binds. There most moves lead to plans that do
// not fit, and several stages a device or split backward passes multiply what is tried in vain.
#include "planner_service/planners/auto/second_search.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "planner_service/planners/auto/draft_search.h"
#include "planner_service/planners/auto/effort.h"

namespace stagewright {
namespace {

// A search that goes without one permission, and the least of the work of an answer for it to
// begin.
struct Again {
  void (*restrict)(PlanOptions& options);
  double least_work;
};
constexpr std::array<Again, 4> kAgain = {{
    {[](PlanOptions& options) {
       if (options.recompute == RecomputePolicy::kAllowed) {
         options.recompute = RecomputePolicy::kNever;
       }
     },
     0.25},
    {[](PlanOptions&) {}, 0.25},
    {[](PlanOptions& options) { options.max_loops = 1; }, 0.05},
    {[](PlanOptions& options) { options.split_backward = false; }, 0.05},
}};
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
  const auto most = static_cast<double>(WithEffort(options, kMostWork.count()));
  for (size_t i = 0; i < kAgain.size(); ++i) {
    const bool good = incumbents.best().has_value() && incumbents.best_time().count() <= near;
    if (good || context.Expired()) break;
    if (static_cast<double>(context.WorkLeft().count()) < kAgain[i].least_work * most) continue;
    PlanOptions again = options;
    again.seed += kOtherDraws + i;
    kAgain[i].restrict(again);
    DraftSearch search(problem, again, context, found, incumbents);
    search.SearchWidely();
    RETURN_IF_ERROR(search.Run(bound, /*polish=*/false));
    outcome.states += search.states();
  }
  return absl::OkStatus();
}

}  // namespace stagewright
