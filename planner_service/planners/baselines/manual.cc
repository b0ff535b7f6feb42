// The planner that plans nothing: it reads what somebody wrote.
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/planners/baselines/baselines.h"
#include "planner_service/planners/baselines/manual_plan.h"

namespace stagewright {
namespace {

class ManualPlanner : public Planner {
 public:
  std::string name() const override { return kManualPlanner; }
  std::string description() const override { return "a plan written by hand, from a file"; }

  absl::StatusOr<Outcome> Solve(const Problem& problem, const PlanOptions& options,
                                SearchContext&) const override {
    if (options.manual.empty()) {
      return absl::InvalidArgumentError(
          "options.manual: the planner \"manual\" needs a plan (--plan-file)");
    }
    ASSIGN_OR_RETURN(Strategy strategy, ParseManualPlan(problem, options.manual));
    EvaluateOptions evaluate;
    evaluate.optimizer = problem.optimizer;
    const auto evaluation =
        Evaluate(*problem.graph, *problem.cluster, *problem.costs, strategy, evaluate);
    Outcome outcome;
    outcome.states = outcome.candidates = 1;
    if (absl::IsResourceExhausted(evaluation.status())) {
      outcome.reason = std::string(evaluation.status().message());
      return outcome;
    }
    if (!evaluation.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("options.manual: ", evaluation.status().message()));
    }
    outcome.termination = Termination::kFeasible;
    outcome.strategy = std::move(strategy);
    return outcome;
  }
};

}  // namespace

std::unique_ptr<Planner> MakeManualPlanner() { return std::make_unique<ManualPlanner>(); }

}  // namespace stagewright
