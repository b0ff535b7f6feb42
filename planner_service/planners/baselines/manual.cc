// The planner that plans nothing: it reads what somebody wrote.
#include "planner_service/planners/baselines/manual.h"

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "planner_service/planners/baselines/manual_plan.h"
#include "planner_service/search/judge.h"

namespace stagewright {
namespace {

class ManualPlanner : public Planner {
 public:
  std::string name() const override { return kManualPlanner; }
  std::string description() const override { return "a plan written by hand, from a file"; }

  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext&) const override {
    ASSIGN_OR_RETURN(Strategy strategy, ParseManualPlan(problem, options.manual));
    const absl::StatusOr<Verdict> verdict = VerdictOn(problem, strategy);
    const absl::Status wrong = verdict.ok() ? verdict->rejection : verdict.status();
    Outcome outcome;
    outcome.states = outcome.candidates = 1;
    if (absl::IsResourceExhausted(wrong)) {
      outcome.reason = std::string(wrong.message());
      return outcome;
    }
    // Whoever wrote the plan has to mend it.
    if (!wrong.ok()) {
      return WithField(
          absl::InvalidArgumentError(absl::StrCat(kManualField, ": ", wrong.message())),
          kManualField);
    }
    outcome.termination = Termination::kFeasible;
    outcome.strategy = std::move(strategy);
    return outcome;
  }
};

}  // namespace

std::unique_ptr<Planner> MakeManualPlanner() { return std::make_unique<ManualPlanner>(); }

}  // namespace stagewright
