#include "planner_service/search/search_views.h"

#include <utility>
#include <vector>

#include "planner_service/search/why_not.h"

namespace stagewright {
namespace {

Outcome Conclude(const std::string& planner, const Problem& problem, const PlanOptions& options,
                 const Judge& judge, const SearchContext& context, Outcome found) {
  Outcome outcome = std::move(found);
  const std::string noted = std::exchange(outcome.reason, "");
  outcome.candidates = judge.count();
  if (judge.best() != nullptr) {
    outcome.strategy = *judge.best();
    outcome.iteration_time = judge.best_time();
  }
  if (context.Expired()) {
    SayStopped(outcome);
  } else if (outcome.strategy) {
    if (outcome.termination == Termination::kLimit) {
      outcome.reason = noted;
    } else {
      outcome.termination = Termination::kFeasible;
    }
  } else {
    Outcome none = NoneFound(planner, problem, options, {"", noted, judge.rejection()});
    outcome.termination = none.termination;
    outcome.reason = std::move(none.reason);
  }
  return outcome;
}

}  // namespace

absl::StatusOr<Outcome> SearchViews(const std::string& planner, const Problem& problem,
                                    const PlanOptions& options, SearchContext& context,
                                    int64_t loops, const ViewSearch& search) {
  Outcome found;
  found.reason = ImpossibleOptions(problem, options, loops);
  if (!found.reason.empty()) return found;
  Judge judge(problem, context);
  const std::vector<PlacementView> views = PlacementViews(problem);
  const auto look_at = [&](bool singles) -> absl::Status {
    for (const PlacementView& view : views) {
      if ((view.devices.size() == 1) != singles) continue;
      if (context.Expired()) break;
      Problem seen = problem;
      seen.cluster = &view.cluster;
      if (!ImpossibleOptions(seen, options, loops).empty()) continue;
      Judge own(judge, &view);
      RETURN_IF_ERROR(search(seen, own, found));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(look_at(/*singles=*/true));
  Judge own(judge, nullptr);
  RETURN_IF_ERROR(search(problem, own, found));
  RETURN_IF_ERROR(look_at(/*singles=*/false));
  return Conclude(planner, problem, options, judge, context, std::move(found));
}

}  // namespace stagewright
