// The one way in: the service, `stagewright plan --local`, tests and benchmarks all plan through
// it. It checks the request, coarsens the graph, runs a planner, has the evaluator judge the
// answer, and turns a wrong answer into an internal error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/cost/measured/operator_profile.h"
#include "common/cost/parameters.h"
#include "common/plan/plan.h"
#include "common/training/precision.h"
#include "planner_service/evaluator/evaluator.h"
#include "planner_service/evaluator/explain.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

struct PlanRequest {
  const Graph* graph = nullptr;
  // The same model for samples of other shapes (common/graph/lengths.h); `graph` is for the
  // largest, which decide about the plan. Null: there are none.
  const std::vector<Graph>* lengths = nullptr;
  const Cluster* cluster = nullptr;
  const CostModel* costs = nullptr;          // Null: by `profile`, or MakeAnalyticCostModel().
  const OperatorProfile* profile = nullptr;  // What operators cost, where `costs` is null.
  Precision precision = Precision::kGraph;   // In which passes compute, where `costs` is null.
  std::string planner = "auto";
  int64_t mini_batch = 0;
  Optimizer optimizer = Optimizer::kAdam;
  PlanOptions options;
  bool timeline = false;
  // The program sums the norm of all gradients (LowerOptions). Answers have it; searches neglect
  // the time of summing one number.
  bool gradient_norm = false;
  bool compare_sequential = false;  // Find the best sequential plan, too.
  bool explain = false;             // Explain the plan.
};

// A plan's strategy for samples of another shape.
struct LengthPlan {
  std::string samples;    // Their shapes, for people.
  Evaluation evaluation;  // With its program.
};

// A request's graphs, with the operators cut that a strategy names (common/rewrite).
struct SplitGraphs {
  Graph graph;
  std::vector<Graph> lengths;
};

struct JudgedPlan {
  Plan plan;
  Evaluation evaluation;
  // What the plan is for and what it runs, where its strategy cuts operators; else null, and the
  // request's graphs are.
  std::shared_ptr<const SplitGraphs> split_graphs;
  // The plan for each of PlanRequest::lengths, in the answer and where it is judged.
  std::vector<LengthPlan> lengths;
};

struct PlanResponse {
  Termination termination = Termination::kInfeasible;
  std::string reason;  // Why there is no plan, and what would make one possible.
  std::optional<JudgedPlan> best;
  std::optional<JudgedPlan> sequential;  // The SPP answer, if asked for and found.
  std::optional<Nanos> one_device;  // Iteration time of the whole model on one device, if it fits.
  Nanos lower_bound = 0;            // Proven bound on the iteration time of any strategy.
  double search_seconds = 0;        // Time of the planner alone, without judging.
  int64_t states = 0;
  int64_t candidates = 0;
  int32_t operators = 0;                   // Planner operators after coarsening.
  std::optional<Explanation> explanation;  // Why `best` is as it is, if asked for.
  std::vector<std::string> warnings;  // E.g. layers that depend on the micro-batch; idle devices.
};

// Called with every improving plan, judged, from the calling thread; each is faster than the one
// before.
using ImprovementCallback = std::function<void(const JudgedPlan&)>;

// INVALID_ARGUMENT names the field, and the planner if it cannot keep to an option; NOT_FOUND an
// unknown planner, with the known ones; INTERNAL a planner whose answer the evaluator rejects or
// that does not do what the options ask. `context.measure` is INVALID_ARGUMENT for planners that do
// not learn by trial. Infeasible and limit reached are responses.
// `context.on_improvement` is used meanwhile if `on_improvement` is given.
absl::StatusOr<PlanResponse> SolvePlan(const PlanRequest& request, SearchContext& context,
                                       const ImprovementCallback& on_improvement = {});

// SolvePlan with a planner that need not be registered; `request.planner` does not matter.
absl::StatusOr<PlanResponse> SolvePlanWith(const Planner& planner, const PlanRequest& request,
                                           SearchContext& context,
                                           const ImprovementCallback& on_improvement = {});

// Judges a strategy made elsewhere (a file, a test, a hand). The options of the request do not
// matter. Errors as SolvePlan's for the request and Evaluate's for the strategy; CANCELLED if
// `context`, which may be null, expires before.
absl::StatusOr<JudgedPlan> JudgeStrategy(const PlanRequest& request, const Strategy& strategy,
                                         const std::string& planner_name,
                                         const SearchContext* context = nullptr);

// Why a strategy takes as long as it does. Ends early, with less judged, when the context expires.
// Errors as JudgeStrategy's.
absl::StatusOr<Explanation> ExplainStrategy(const PlanRequest& request, const Strategy& strategy,
                                            const SearchContext& context);

struct PlannerInfo {
  std::string name;
  std::string description;
  bool learns_by_trial = false;  // Searches with SearchContext::measure, which others refuse.
};
// Every registered planner, in order.
std::vector<PlannerInfo> ListPlanners();

}  // namespace stagewright
