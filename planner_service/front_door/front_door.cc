#include "planner_service/front_door/front_door.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/cost/node_weights.h"
#include "common/graph/operator_graph.h"
#include "planner_service/evaluator/lower_bound.h"
#include "planner_service/front_door/check_request.h"
#include "planner_service/front_door/check_times.h"
#include "planner_service/front_door/few_operators.h"
#include "planner_service/front_door/judge_lengths.h"
#include "planner_service/front_door/plan_warnings.h"
#include "planner_service/front_door/planner_table.h"
#include "planner_service/front_door/request_costs.h"
#include "planner_service/front_door/sharded_plans.h"
#include "planner_service/front_door/split_plans.h"
#include "planner_service/planner/fit.h"
#include "planner_service/planner/whole_batch.h"
#include "planner_service/search/canonical_operators.h"
#include "planner_service/search/micro_batch_sizes.h"
#include "planner_service/search/one_stage.h"
#include "planner_service/search/why_not.h"

namespace stagewright {
namespace {

// A problem and what it refers to beyond the request.
struct Prepared {
  std::unique_ptr<CostModel> own_costs;
  OperatorGraph operators;
  std::string why_few;  // Why there are fewer operators than stages asked for, or only one.
  Problem problem;
};

const CostModel* CostsOf(const PlanRequest& request, std::unique_ptr<CostModel>& own) {
  if (request.costs != nullptr) return request.costs;
  own = MakeCosts(request, *request.graph);
  return own.get();
}

bool IsProfiled(const Graph& graph) {
  const auto nodes = graph.nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const Node& node) { return node.cost.has_value(); });
}

// Weights are taken at about the share that a device gets when a few micro-batches fill a pipeline.
std::vector<double> WeightsOf(const PlanRequest& request, const CostModel& costs) {
  int64_t samples = request.options.micro_batch;
  if (samples == 0) {
    samples = std::max<int64_t>(1, request.mini_batch / (2 * request.cluster->size()));
  }
  return NodeWeights(*request.graph, costs, request.cluster->kinds()[0], samples);
}

absl::Status Prepare(const PlanRequest& request, Prepared& prepared) {
  const CostModel* costs = CostsOf(request, prepared.own_costs);
  RETURN_IF_ERROR(CheckTimes(*request.graph, *request.cluster, *costs, request.mini_batch));
  if (IsProfiled(*request.graph)) {
    ASSIGN_OR_RETURN(prepared.operators, OneOperatorPerNode(*request.graph));
  } else {
    const std::vector<double> weights = WeightsOf(request, *costs);
    ASSIGN_OR_RETURN(prepared.operators, Coarsen(*request.graph, weights));
    const int32_t least = std::max(request.options.num_stages, 2);
    if (prepared.operators.size() < least)
      prepared.why_few = WhyFewOperators(*request.graph, prepared.operators, weights);
  }
  prepared.problem = {request.graph,
                      &prepared.operators,
                      request.cluster,
                      costs,
                      request.mini_batch,
                      request.optimizer,
                      request.options.batch_statistics,
                      request.options.bucket_bytes,
                      request.options.optimizer_sharding.value_or(OptimizerSharding::kNone)};
  prepared.operators = CanonicalOperators(prepared.problem);
  return absl::OkStatus();
}

absl::StatusOr<JudgedPlan> MakeJudgedPlan(const PlanRequest& request, const CostModel& costs,
                                          const Strategy& strategy, const std::string& planner_name,
                                          const std::function<bool()>& stop = {}) {
  EvaluateOptions options;
  options.stop = stop;
  options.optimizer = request.optimizer;
  options.timeline = request.timeline;
  options.gradient_norm = request.gradient_norm;
  JudgedPlan judged;
  ASSIGN_OR_RETURN(judged.evaluation,
                   Evaluate(*request.graph, *request.cluster, costs, strategy, options));
  Plan& plan = judged.plan;
  plan.strategy = strategy;
  plan.program = judged.evaluation.program;
  plan.provenance.planner = planner_name;
  plan.provenance.version = STAGEWRIGHT_VERSION;
  plan.provenance.cost_model = costs.Description();
  plan.provenance.options = OptionsText(request);
  plan.provenance.cluster = request.cluster->name();
  plan.provenance.graph_fingerprint = Fingerprint(*request.graph);
  plan.provenance.precision = costs.precision();
  plan.fingerprint = Fingerprint(plan.program, plan.provenance.graph_fingerprint);
  return judged;
}

// Judges a planner's answer: the planner is to blame if it is rejected.
absl::StatusOr<JudgedPlan> JudgeAnswer(const PlanRequest& request, const Problem& problem,
                                       const Strategy& strategy, const std::string& planner) {
  absl::StatusOr<JudgedPlan> judged = MakeJudgedPlan(request, *problem.costs, strategy, planner);
  if (judged.ok()) return judged;
  return absl::InternalError(
      absl::StrCat("planner '", planner,
                   "' gave an answer that the evaluator rejects: ", judged.status().message()));
}

// Why no strategy can have the stages asked for; empty if one may.
std::string TooManyStages(const PlanOptions& options, const Prepared& prepared) {
  std::string reason = ImpossibleOptions(prepared.problem, options, options.max_loops);
  if (options.num_stages > prepared.operators.size() && !prepared.why_few.empty()) {
    absl::StrAppend(&reason, ": ", prepared.why_few);
  }
  return reason;
}

struct SearchedPlan {
  Outcome outcome;
  std::optional<JudgedPlan> judged;
  double seconds = 0;
};

absl::StatusOr<SearchedPlan> Search(const PlanRequest& request, const Problem& problem,
                                    const Planner& planner, SearchContext& context,
                                    const ImprovementCallback& on_improvement) {
  using Seconds = std::chrono::duration<double>;
  absl::Status rejected;
  Nanos best = std::numeric_limits<Nanos>::max();
  Seconds judging{0};
  auto before = std::move(context.on_improvement);
  const absl::Cleanup restore = [&] { context.on_improvement = std::move(before); };
  context.on_improvement = nullptr;
  if (on_improvement) {
    context.on_improvement = [&](const Strategy& strategy) {
      if (!rejected.ok()) return;
      const auto start = SearchContext::Clock::now();
      const auto judged = JudgeAnswer(request, problem, strategy, planner.name());
      rejected = judged.status();
      if (judged.ok() && judged->evaluation.iteration_time < best) {
        best = judged->evaluation.iteration_time;
        on_improvement(*judged);
      }
      judging += SearchContext::Clock::now() - start;
    };
  }
  SearchedPlan found;
  const auto start = SearchContext::Clock::now();
  ASSIGN_OR_RETURN(found.outcome, SolveOnWholeBatches(planner, problem, request.options, context));
  found.seconds = (Seconds(SearchContext::Clock::now() - start) - judging).count();
  RETURN_IF_ERROR(rejected);
  RETURN_IF_ERROR(CheckOutcome(request, planner.name(), found.outcome));
  if (found.outcome.strategy) {
    ASSIGN_OR_RETURN(found.judged,
                     JudgeAnswer(request, problem, *found.outcome.strategy, planner.name()));
  }
  return found;
}

// The time of the whole model on one device, in the largest micro-batches that fit: smaller ones
// are never faster. nullopt if it fits on none, or only in very small ones.
std::optional<Nanos> TimeOnOneDevice(const PlanRequest& request, const Problem& problem) {
  constexpr int64_t kMostMicroBatches = 64;
  const std::vector<int64_t> sizes = MicroBatches(problem, {});
  std::optional<Nanos> best;
  std::set<std::pair<int32_t, Bytes>> tried;
  for (int32_t d = 0; d < problem.cluster->size(); ++d) {
    const Device& device = problem.cluster->device(DeviceId(d));
    if (!tried.insert({device.kind, device.memory}).second) continue;
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      if (problem.mini_batch / *size > kMostMicroBatches) break;
      Strategy strategy = OneStage(problem, {DeviceId(d)}, *size);
      strategy.stages[0].recompute = request.options.recompute == RecomputePolicy::kAlways;
      const auto judged = MakeJudgedPlan(request, *problem.costs, strategy, kSinglePlanner);
      if (!judged.ok()) continue;
      if (!best || judged->evaluation.iteration_time < *best)
        best = judged->evaluation.iteration_time;
      break;
    }
  }
  return best;
}

// The whole model on one device, to compare with.
std::optional<Nanos> OneDevice(const PlanRequest& request, const Problem& problem,
                               const JudgedPlan& best) {
  if (best.plan.strategy.asynchronous) return std::nullopt;
  const bool whole = best.evaluation.devices.size() == 1 && best.plan.strategy.stages.size() == 1;
  return whole ? best.evaluation.iteration_time : TimeOnOneDevice(request, problem);
}

absl::Status CompareSequential(const PlanRequest& request, const Problem& problem,
                               SearchContext& context, PlanResponse& response) {
  ASSIGN_OR_RETURN(const auto planner, MakePlanner(kSequentialPlanner));
  if (auto able = CheckAbilities(request.options, planner->name(), planner->abilities());
      !able.ok()) {
    response.warnings.push_back(
        absl::StrCat("no sequential plan to compare with: ", std::string(able.message())));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(SearchedPlan found, Search(request, problem, *planner, context, {}));
  response.sequential = std::move(found.judged);
  if (!response.sequential) {
    response.warnings.push_back(
        absl::StrCat("no sequential plan to compare with: ", found.outcome.reason));
  }
  return absl::OkStatus();
}

// The request with the operators cut that a strategy names.
struct CutRequest {
  PlanRequest request;
  std::shared_ptr<const SplitGraphs> graphs;  // Null if it names none.
};

absl::StatusOr<CutRequest> CutFor(const PlanRequest& request, const Strategy& strategy) {
  if (strategy.splits.empty()) return CutRequest{request, nullptr};
  ASSIGN_OR_RETURN(auto graphs, SplitGraphsOf(request, strategy.splits));
  PlanRequest cut = RequestFor(request, *graphs);
  return CutRequest{std::move(cut), std::move(graphs)};
}

// The answer for the graphs as they are. `bound` is the lower bound, where it is known.
absl::StatusOr<PlanResponse> SolveWhole(const Planner& planner, const PlanRequest& request,
                                        SearchContext& context,
                                        const ImprovementCallback& on_improvement,
                                        std::optional<Nanos> bound);

Nanos BoundOf(const PlanRequest& request, const Prepared& prepared) {
  return LowerBound(
      *request.graph, prepared.operators, *request.cluster, *prepared.problem.costs,
      request.mini_batch,
      {request.optimizer, request.options.asynchronous, prepared.problem.optimizer_sharding});
}

absl::StatusOr<Nanos> LowerBoundOf(const PlanRequest& request) {
  Prepared prepared;
  RETURN_IF_ERROR(Prepare(request, prepared));
  return BoundOf(request, prepared);
}

absl::StatusOr<std::optional<NodeId>> TooLargeIn(const PlanRequest& request) {
  Prepared prepared;
  RETURN_IF_ERROR(Prepare(request, prepared));
  return NodeTooLarge(prepared.problem);
}

}  // namespace

absl::StatusOr<PlanResponse> SolvePlan(const PlanRequest& request, SearchContext& context,
                                       const ImprovementCallback& on_improvement) {
  RETURN_IF_ERROR(CheckProblem(request));
  RETURN_IF_ERROR(CheckOptions(request));
  ASSIGN_OR_RETURN(const std::unique_ptr<Planner> planner, MakePlanner(request.planner));
  return SolvePlanWith(*planner, request, context, on_improvement);
}

absl::StatusOr<PlanResponse> SolvePlanWith(const Planner& planner, const PlanRequest& request,
                                           SearchContext& context,
                                           const ImprovementCallback& on_improvement) {
  RETURN_IF_ERROR(CheckProblem(request));
  RETURN_IF_ERROR(CheckOptions(request));
  RETURN_IF_ERROR(CheckAbilities(request.options, planner.name(), planner.abilities()));
  if (context.measure && !planner.abilities().learns_by_trial) {
    return absl::InvalidArgumentError(absl::StrCat(
        "planner '", planner.name(), "' does not learn from measurements of strategies"));
  }
  const auto solve = [&](const PlanRequest& one, SearchContext& own,
                         const ImprovementCallback& improved) {
    return SolveWithSplits(one, planner.abilities().tries_splits, own, improved,
                           {[&](const PlanRequest& whole, const ImprovementCallback& better,
                                Nanos most_work, std::optional<Nanos> bound) {
                              if (most_work == SearchContext::kAnyWork)
                                return SolveWhole(planner, whole, own, better, bound);
                              SearchContext part(own, most_work);
                              return SolveWhole(planner, whole, part, better, bound);
                            },
                            LowerBoundOf, TooLargeIn});
  };
  if (request.options.optimizer_sharding.has_value())
    return solve(request, context, on_improvement);
  return SolveEitherSharding(request, context, on_improvement, solve);
}

namespace {

absl::StatusOr<PlanResponse> SolveWhole(const Planner& planner, const PlanRequest& request,
                                        SearchContext& context,
                                        const ImprovementCallback& on_improvement,
                                        std::optional<Nanos> bound) {
  Prepared prepared;
  RETURN_IF_ERROR(Prepare(request, prepared));
  const Problem& problem = prepared.problem;

  PlanResponse response;
  response.operators = prepared.operators.size();
  // On large clusters it takes longer than the first plan, which does not wait for it.
  const auto set_bound = [&] {
    response.lower_bound = bound.has_value() ? *bound : BoundOf(request, prepared);
  };
  response.reason = WhyNoMicroBatch(problem, request.options);
  if (std::string reason = TooManyStages(request.options, prepared); !reason.empty()) {
    response.reason = std::move(reason);
  }
  if (auto reason = WhyNothingFits(problem)) response.reason = *std::move(reason);
  if (!response.reason.empty()) {
    set_bound();
    return response;
  }
  context.lower_bound = bound;
  ASSIGN_OR_RETURN(SearchedPlan found, Search(request, problem, planner, context, on_improvement));
  context.lower_bound.reset();
  if (!bound.has_value()) bound = found.outcome.lower_bound;
  set_bound();
  response.termination = found.outcome.termination;
  response.reason = std::move(found.outcome.reason);
  response.best = std::move(found.judged);
  response.search_seconds = found.seconds;
  response.states = found.outcome.states;
  response.candidates = found.outcome.candidates;
  if (response.best) {
    if (absl::Status held = JudgeLengths(request, *response.best); !held.ok()) {
      response.termination = Termination::kInfeasible;
      response.reason = std::string(held.message());
      response.best.reset();
      return response;
    }
  }
  if (response.best) {
    if (prepared.operators.size() == 1 && request.cluster->size() > 1 &&
        !prepared.why_few.empty()) {
      response.warnings.push_back(absl::StrCat(
          "the graph has only one operator, so there is no pipeline: ", prepared.why_few));
    }
    for (std::string& warning : PlanWarnings(*request.graph, prepared.operators, *request.cluster,
                                             response.best->plan.strategy)) {
      response.warnings.push_back(std::move(warning));
    }
    if (response.termination == Termination::kLimit) {
      response.warnings.push_back(absl::StrCat(
          "the search ended early, so that a better plan may exist: ", response.reason));
    }
    for (std::string& warning : found.outcome.warnings) {
      response.warnings.push_back(std::move(warning));
    }
  }
  if (response.best) response.one_device = OneDevice(request, problem, *response.best);
  if (request.compare_sequential && planner.name() == kSequentialPlanner) {
    response.sequential = response.best;
  } else if (request.compare_sequential && found.outcome.sequential) {
    ASSIGN_OR_RETURN(response.sequential,
                     JudgeAnswer(request, problem, *found.outcome.sequential, planner.name()));
  } else if (request.compare_sequential) {
    RETURN_IF_ERROR(CompareSequential(request, problem, context, response));
  }
  if (request.explain && response.best) {
    ASSIGN_OR_RETURN(response.explanation,
                     ExplainStrategy(request, response.best->plan.strategy, context));
  }
  return response;
}

}  // namespace

absl::StatusOr<JudgedPlan> JudgeStrategy(const PlanRequest& request, const Strategy& strategy,
                                         const std::string& planner_name,
                                         const SearchContext* context) {
  RETURN_IF_ERROR(CheckProblem(request));
  if (strategy.mini_batch != request.mini_batch) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mini_batch: is ", request.mini_batch, ", but the strategy is for ", strategy.mini_batch));
  }
  ASSIGN_OR_RETURN(const CutRequest cut, CutFor(request, strategy));
  std::unique_ptr<CostModel> own_costs;
  const CostModel& costs = *CostsOf(cut.request, own_costs);
  RETURN_IF_ERROR(CheckTimes(*cut.request.graph, *request.cluster, costs, request.mini_batch));
  std::function<bool()> stop;
  if (context != nullptr) stop = [context] { return context->Expired(); };
  ASSIGN_OR_RETURN(JudgedPlan judged,
                   MakeJudgedPlan(cut.request, costs, strategy, planner_name, stop));
  RETURN_IF_ERROR(JudgeLengths(cut.request, judged, stop));
  if (cut.graphs != nullptr) TellSplits(strategy.splits, cut.graphs, judged);
  return judged;
}

absl::StatusOr<Explanation> ExplainStrategy(const PlanRequest& request, const Strategy& strategy,
                                            const SearchContext& context) {
  RETURN_IF_ERROR(CheckProblem(request));
  ASSIGN_OR_RETURN(const CutRequest cut, CutFor(request, strategy));
  Prepared prepared;
  RETURN_IF_ERROR(Prepare(cut.request, prepared));
  ExplainOptions options;
  options.optimizer = request.optimizer;
  options.expired = [&context] { return context.Expired(); };
  return Explain(*cut.request.graph, prepared.operators, *request.cluster, *prepared.problem.costs,
                 strategy, options);
}

std::vector<PlannerInfo> ListPlanners() {
  std::vector<PlannerInfo> infos;
  for (const auto& planners : {RegisteredPlanners(), PlannersOnRequest()}) {
    for (const RegisteredPlanner& entry : planners) {
      const std::unique_ptr<Planner> planner = entry.make();
      infos.push_back({entry.name, planner->description(), planner->abilities().learns_by_trial});
    }
  }
  return infos;
}

}  // namespace stagewright
