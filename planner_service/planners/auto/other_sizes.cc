// A member answers with the micro-batch size that is best by its own orders, and by that size the
// search is drawn to some of the partitions: with orders that the list schedule finds, another
// partition with another size may win. The search changes sizes as well, but seldom both at once.
#include "planner_service/planners/auto/other_sizes.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "planner_service/planner/whole_batch.h"
#include "planner_service/planners/auto/effort.h"
#include "planner_service/planners/auto/members.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {
namespace {

// Where sizes stand to that of the best strategy, in the order in which they are tried.
constexpr int64_t kSteps[] = {0, 1, -1, 2};
// The part of the work that is left which members may take.
constexpr double kMembers = 0.4;

// The best strategy's micro-batch size and its neighbours.
std::vector<int64_t> SizesAround(const Problem& problem, const PlanOptions& options, int64_t size) {
  const std::vector<int64_t> sizes = MicroBatchSizes(problem, options, Rounding::kUp);
  const auto at = std::lower_bound(sizes.begin(), sizes.end(), size) - sizes.begin();
  std::vector<int64_t> around;
  for (const int64_t step : kSteps) {
    if (at + step >= 0 && at + step < std::ssize(sizes)) around.push_back(sizes[at + step]);
  }
  return around;
}

// `best`, and what members answer, with these micro-batches.
absl::StatusOr<std::vector<Draft>> DraftsOfSizes(const Problem& problem, PlanOptions options,
                                                 const SearchContext& whole, const Draft& best,
                                                 Incumbents& incumbents) {
  std::vector<Draft> drafts = {best};
  const SearchContext context(whole, PartOfWork(whole, kMembers));
  const std::vector<AutoMember> members = AutoMembers(problem, options);
  for (const int64_t size : SizesAround(problem, options, best.micro_batch)) {
    drafts.push_back(best);
    drafts.back().micro_batch = options.micro_batch = size;
    for (const AutoMember& member : members) {
      if (!member.several_sizes || context.Expired()) continue;
      SearchContext own(context, member.most_effort);
      ASSIGN_OR_RETURN(const Outcome answer,
                       SolveOnWholeBatches(*member.planner, problem, options, own));
      if (!answer.strategy.has_value()) continue;
      RETURN_IF_ERROR(incumbents.Consider(*answer.strategy).status());
      auto draft = ToDraft(problem, *answer.strategy);
      if (!draft.has_value()) continue;
      // A sequential pipeline without its chain is no slower.
      if (best.kind == StrategyKind::kGraph) draft->kind = best.kind;
      drafts.push_back(*std::move(draft));
    }
  }
  return drafts;
}

}  // namespace

absl::Status ConsiderOtherSizes(const Problem& problem, const PlanOptions& options,
                                const SearchContext& context, Nanos bound, DraftSearch& search,
                                Incumbents& incumbents) {
  if (options.micro_batch > 0) return absl::OkStatus();
  // What is to be beaten is what the answer would be without this.
  RETURN_IF_ERROR(incumbents.DropIdleRecomputation());
  for (uint64_t seed = options.seed;; ++seed) {
    if (!incumbents.best().has_value() || context.Expired()) break;
    const Nanos before = incumbents.best_time();
    const auto best = ToDraft(problem, *incumbents.best());
    if (before <= bound || !best.has_value()) break;
    ASSIGN_OR_RETURN(std::vector<Draft> drafts,
                     DraftsOfSizes(problem, options, context, *best, incumbents));
    RETURN_IF_ERROR(search.Extend(std::move(drafts), seed));
    if (incumbents.best_time() >= before) break;
  }
  return absl::OkStatus();
}

}  // namespace stagewright
