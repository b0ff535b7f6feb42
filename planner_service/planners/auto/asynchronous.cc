#include "planner_service/planners/auto/asynchronous.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/strategy/in_flight.h"
#include "planner_service/evaluator/lower_bound.h"
#include "planner_service/planners/auto/effort.h"
#include "planner_service/planners/auto/incumbents.h"
#include "planner_service/planners/auto/member_runs.h"
#include "planner_service/planners/auto/portfolio.h"
#include "planner_service/search/judge.h"
#include "planner_service/search/micro_batch_sizes.h"

namespace stagewright {
namespace {

// The effort of judging synchronous planners' stages with all micro-batch sizes (EffortOfJudging).
// An asynchronous program is simulated for several steps.
constexpr int64_t kConversionEffort = 1'200'000;
constexpr int64_t kSimulatedSteps = 8;

std::string Milliseconds(Nanos time) { return absl::StrFormat("%.4g ms", ToSeconds(time) * 1e3); }

absl::Status ConsiderConversions(const Problem& problem, const PlanOptions& options,
                                 const std::vector<Strategy>& found, const SearchContext& context,
                                 Incumbents& incumbents) {
  const SearchContext effort(context, WithEffort(options, kConversionEffort));
  for (const Strategy& strategy : found) {
    std::set<int64_t> sizes;
    for (int64_t size : MicroBatchSizes(problem, options, Rounding::kUp)) {
      sizes.insert(size);
    }
    sizes.insert(strategy.stages.front().micro_batch);
    for (int64_t size : sizes) {
      std::optional<Strategy> converted = Asynchronous(strategy, size);
      if (!converted.has_value()) continue;
      converted->vertical_sync = options.vertical_sync;
      effort.Charge(kSimulatedSteps * EffortOfJudging(*converted));
      if (effort.Expired()) return absl::OkStatus();
      RETURN_IF_ERROR(incumbents.Consider(*converted).status());
    }
  }
  return absl::OkStatus();
}

// What a faster synchronous strategy would take; empty if there is none.
absl::StatusOr<std::string> FasterSynchronous(const Problem& problem, const Outcome& synchronous,
                                              Nanos asynchronous) {
  if (!synchronous.strategy.has_value()) return std::string();
  ASSIGN_OR_RETURN(const Verdict verdict, VerdictOn(problem, *synchronous.strategy));
  RETURN_IF_ERROR(verdict.rejection);
  if (*verdict.time >= asynchronous) return std::string();
  return absl::StrCat("a synchronous plan is faster: ", Milliseconds(*verdict.time), " instead of ",
                      Milliseconds(asynchronous), " per mini-batch");
}

}  // namespace

std::optional<Strategy> Asynchronous(const Strategy& strategy, int64_t micro_batch) {
  Strategy converted = strategy;
  converted.asynchronous = true;
  converted.orders.clear();
  std::set<DeviceId> used;
  for (Stage& stage : converted.stages) {
    if (static_cast<int64_t>(stage.devices.size()) > micro_batch) return std::nullopt;
    for (DeviceId device : stage.devices) {
      if (!used.insert(device).second) return std::nullopt;
    }
    stage.micro_batch = micro_batch;
    stage.schedule = {micro_batch, 1};
  }
  AssignInFlight(converted);
  return converted;
}

absl::StatusOr<Outcome> SolveAsynchronous(const Problem& problem, const PlanOptions& options,
                                          SearchContext& context) {
  Outcome outcome;
  Incumbents incumbents(problem, options, context);
  MemberRuns members(problem, options, context, incumbents);
  RETURN_IF_ERROR(members.RunAll(outcome));
  PlanOptions flushed = options;
  flushed.asynchronous = flushed.vertical_sync = false;
  SearchContext silent(context, SearchContext::kAnyEffort);
  std::vector<Strategy> found;
  ASSIGN_OR_RETURN(const Outcome synchronous, SolveSynchronous(problem, flushed, silent, &found));
  RETURN_IF_ERROR(ConsiderConversions(problem, options, found, context, incumbents));
  RETURN_IF_ERROR(incumbents.DropIdleRecomputation());
  outcome.states += synchronous.states;
  outcome.candidates += synchronous.candidates + incumbents.judged();
  outcome.strategy = incumbents.best();
  outcome.sequential = incumbents.sequential();
  if (outcome.strategy.has_value()) outcome.termination = Termination::kFeasible;
  if (context.Stopped()) {
    SayStopped(outcome);
    return outcome;
  }
  if (!outcome.strategy.has_value()) {
    SayNoneFound(problem, options, incumbents, members.none(), outcome);
    return outcome;
  }
  ASSIGN_OR_RETURN(std::string warning,
                   FasterSynchronous(problem, synchronous, incumbents.best_time()));
  if (!warning.empty()) outcome.warnings.push_back(std::move(warning));
  const Nanos bound =
      LowerBound(*problem.graph, *problem.operators, *problem.cluster, *problem.costs,
                 problem.mini_batch, {problem.optimizer, /*asynchronous=*/true});
  if (incumbents.best_time() <= bound) outcome.termination = Termination::kOptimal;
  return outcome;
}

}  // namespace stagewright
