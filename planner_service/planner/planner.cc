#include "planner_service/planner/planner.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error_details.h"
#include "common/cost/node_weights.h"

namespace stagewright {

Strategy EmptyStrategy(const Problem& problem, StrategyKind kind) {
  Strategy strategy;
  strategy.kind = kind;
  strategy.mini_batch = problem.mini_batch;
  strategy.batch_statistics = problem.batch_statistics;
  strategy.bucket_bytes = problem.bucket_bytes;
  strategy.optimizer_sharding = problem.optimizer_sharding;
  return strategy;
}

std::vector<Nanos> TimesOfKinds(const Problem& problem) {
  std::vector<Nanos> times;
  for (const DeviceKind& kind : problem.cluster->kinds())
    times.emplace_back(std::llround(TotalTime(*problem.graph, *problem.costs, kind, 1)));
  return times;
}

const char* TerminationName(Termination termination) {
  switch (termination) {
    case Termination::kOptimal:
      return "optimal";
    case Termination::kFeasible:
      return "feasible";
    case Termination::kInfeasible:
      return "infeasible";
    case Termination::kLimit:
      return "limit";
  }
  CHECK(false);
}

absl::Status CheckAbilities(const PlanOptions& options, const std::string& planner,
                            const PlannerAbilities& abilities) {
  if (planner == kManualPlanner) return absl::OkStatus();
  const auto cannot = [&](const char* option, const char* what) {
    const std::string field = absl::StrCat("options.", option);
    return WithField(
        absl::InvalidArgumentError(absl::StrCat(field, ": planner '", planner, "' ", what)), field);
  };
  if (options.asynchronous && !abilities.asynchronous) {
    return cannot("asynchronous", "makes synchronous plans only");
  }
  if (options.recompute == RecomputePolicy::kAlways && !abilities.recompute_always) {
    return cannot("recompute", "makes no plans that always recompute");
  }
  if (options.num_stages > 1 && !abilities.several_stages) {
    return cannot("num_stages", "makes plans of one stage only");
  }
  if (!options.allow_replicas && !abilities.without_replicas) {
    return cannot("allow_replicas", "makes plans with replicas only");
  }
  return absl::OkStatus();
}

void SayStopped(Outcome& outcome, const std::string& after) {
  outcome.termination = Termination::kLimit;
  outcome.reason = absl::StrCat("the search was stopped by its deadline or cancelled",
                                after.empty() ? "" : " after ", after);
}

}  // namespace stagewright
