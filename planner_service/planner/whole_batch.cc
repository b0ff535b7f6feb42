#include "planner_service/planner/whole_batch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/strategy/in_flight.h"

namespace stagewright {
namespace {

std::string Named(const Node& node) {
  return absl::StrCat("node \"", node.name, "\"",
                      node.module.empty() ? "" : absl::StrCat(" of module \"", node.module, "\""));
}

// What to add to the reason of an outcome without a plan.
std::string WhyWhole(const Problem& problem) {
  const Node& node =
      problem.graph->node(*FirstOnWholeBatch(*problem.graph, problem.batch_statistics));
  return absl::StrCat(Named(node), " needs the whole mini-batch of ", problem.mini_batch,
                      " samples in one pass on one device",
                      IsBatchNormalisation(node) ? "; with --batch-statistics micro it may run on "
                                                   "micro-batches and replicas"
                                                 : "");
}

// What in the options contradicts the whole mini-batch; empty if nothing does.
std::string Contradiction(const Problem& problem, const PlanOptions& options,
                          const Planner& planner) {
  if (options.micro_batch > 0 && options.micro_batch != problem.mini_batch) {
    return absl::StrCat("a micro_batch of ", options.micro_batch, " is asked for, and planner '",
                        planner.name(), "' gives all stages the same");
  }
  if (problem.mini_batch > problem.graph->samples().most) {
    return absl::StrCat("the model takes at most ", problem.graph->samples().most,
                        " samples in one forward pass; choose another mini_batch");
  }
  if (problem.cluster->size() > 1 && !planner.abilities().without_replicas)
    return absl::StrCat("planner '", planner.name(), "' makes plans with replicas only");
  return "";
}

}  // namespace

bool HasWholeStages(const Problem& problem) {
  return FirstOnWholeBatch(*problem.graph, problem.batch_statistics).has_value();
}

std::vector<bool> WholeOperators(const Problem& problem) {
  std::vector<bool> whole;
  for (const Operator& op : problem.operators->operators()) {
    whole.push_back(std::any_of(op.nodes.begin(), op.nodes.end(), [&](NodeId node) {
      return NeedsWholeBatch(problem.graph->node(node), problem.batch_statistics);
    }));
  }
  return whole;
}

PlanOptions OnWholeBatches(const Problem& problem, PlanOptions options) {
  options.micro_batch = problem.mini_batch;
  options.per_stage_micro_batch = false;
  if (problem.cluster->size() > 1) options.allow_replicas = false;
  return options;
}

absl::StatusOr<Outcome> SolveOnWholeBatches(const Planner& planner, const Problem& problem,
                                            const PlanOptions& options, SearchContext& context) {
  if (planner.name() == kManualPlanner || !HasWholeStages(problem))
    return planner.Solve(problem, options, context);
  Outcome outcome;
  if (planner.abilities().whole_stages) {
    ASSIGN_OR_RETURN(outcome, planner.Solve(problem, options, context));
  } else if (std::string bad = Contradiction(problem, options, planner); !bad.empty()) {
    outcome.reason = std::move(bad);
  } else {
    ASSIGN_OR_RETURN(outcome, planner.Solve(problem, OnWholeBatches(problem, options), context));
  }
  if (outcome.strategy.has_value()) return outcome;
  // The node may be why: no proof that nothing fits.
  outcome.termination = Termination::kLimit;
  outcome.reason = absl::StrCat(WhyWhole(problem), "; ", outcome.reason);
  return outcome;
}

Strategy WithWholeStages(const Problem& problem, Strategy strategy) {
  const std::vector<Nanos> times = TimesOfKinds(problem);
  const auto time_on = [&](DeviceId device) { return times[problem.cluster->device(device).kind]; };
  for (Stage& stage : strategy.stages) {
    const bool whole = std::any_of(stage.nodes.begin(), stage.nodes.end(), [&](NodeId node) {
      return NeedsWholeBatch(problem.graph->node(node), problem.batch_statistics);
    });
    if (!whole) continue;
    stage.micro_batch = problem.mini_batch;
    stage.schedule.k = 1;
    stage.devices = {
        *std::min_element(stage.devices.begin(), stage.devices.end(),
                          [&](DeviceId a, DeviceId b) { return time_on(a) < time_on(b); })};
  }
  strategy.batch_statistics = problem.batch_statistics;
  strategy.orders.clear();
  AssignInFlight(strategy);
  return strategy;
}

}  // namespace stagewright
