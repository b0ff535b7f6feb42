#include "planner_service/planner/planner.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagewright {

Strategy EmptyStrategy(const Problem& problem, StrategyKind kind) {
  Strategy strategy;
  strategy.kind = kind;
  strategy.mini_batch = problem.mini_batch;
  strategy.batch_statistics = problem.batch_statistics;
  return strategy;
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
    return absl::InvalidArgumentError(
        absl::StrCat("options.", option, ": planner '", planner, "' ", what));
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

int64_t EffortOfJudging(const Strategy& strategy) {
  constexpr int64_t kEffortPerShare = 8;  // A replica's micro-batch: passes, transfers, memory.
  int64_t shares = 0;
  for (const Stage& stage : strategy.stages) {
    shares += static_cast<int64_t>(stage.devices.size()) *
              (strategy.mini_batch / std::max<int64_t>(1, stage.micro_batch));
  }
  return kEffortPerShare * shares;
}

}  // namespace stagewright
