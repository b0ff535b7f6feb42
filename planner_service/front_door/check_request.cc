#include "planner_service/front_door/check_request.h"

#include <algorithm>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"
#include "common/training/autocast.h"
#include "common/training/optimizer_spec.h"

namespace stagewright {
namespace {

// "FIELD: what is wrong with it"
template <typename... Args>
absl::Status Invalid(const Args&... args) {
  const std::string message = absl::StrCat(args...);
  return WithField(absl::InvalidArgumentError(message), message.substr(0, message.find(':')));
}

const char* PolicyName(RecomputePolicy policy) {
  switch (policy) {
    case RecomputePolicy::kAllowed:
      return "allowed";
    case RecomputePolicy::kNever:
      return "never";
    case RecomputePolicy::kAlways:
      return "always";
  }
  return "unknown";
}

std::string NumberOrAny(int64_t value) { return value == 0 ? "any" : absl::StrCat(value); }

// What in the schedule breaks the options; empty if nothing does.
std::string BrokenSchedule(const PlanOptions& options, const Strategy& strategy) {
  if (strategy.asynchronous != options.asynchronous) {
    return strategy.asynchronous ? "an asynchronous schedule" : "a synchronous schedule";
  }
  if (strategy.vertical_sync != options.vertical_sync)
    return strategy.vertical_sync ? "vertical sync" : "no vertical sync";
  if (options.sequential && strategy.kind != StrategyKind::kSequential &&
      strategy.stages.size() > 1) {
    return "a graph of stages instead of a chain";
  }
  if (!options.split_backward) {
    for (const DeviceOrder& order : strategy.orders) {
      for (const ComputeStep& step : order.steps) {
        if (step.pass == Pass::kBackwardInput || step.pass == Pass::kBackwardWeight)
          return "a split backward pass";
      }
    }
  }
  std::map<DeviceId, int32_t> loops;
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    if (strategy.stages[s].recompute && options.recompute == RecomputePolicy::kNever)
      return absl::StrCat("recomputation in stage ", s);
    if (!strategy.stages[s].recompute && options.recompute == RecomputePolicy::kAlways)
      return absl::StrCat("no recomputation in stage ", s);
    for (DeviceId device : strategy.stages[s].devices) {
      if (options.max_loops > 0 && ++loops[device] > options.max_loops)
        return absl::StrCat("more than ", options.max_loops, " stages on device ", device.value());
    }
  }
  return "";
}

// The stage runs the whole mini-batch at once whatever the options say of micro-batches.
bool IsWhole(const PlanRequest& request, const Stage& stage) {
  return std::any_of(stage.nodes.begin(), stage.nodes.end(), [&](NodeId node) {
    return NeedsWholeBatch(request.graph->node(node), request.options.batch_statistics);
  });
}

// What in the strategy breaks the request; empty if nothing does.
std::string BrokenPromise(const PlanRequest& request, const std::string& planner,
                          const Strategy& strategy) {
  const PlanOptions& options = request.options;
  const auto stages = static_cast<int64_t>(strategy.stages.size());
  if (strategy.mini_batch != request.mini_batch) {
    return absl::StrCat("a mini-batch of ", strategy.mini_batch, " instead of ",
                        request.mini_batch);
  }
  if (planner == kManualPlanner) return "";
  if (strategy.batch_statistics != request.options.batch_statistics)
    return absl::StrCat("batch statistics ", BatchStatisticsName(strategy.batch_statistics));
  if (strategy.optimizer_sharding != options.optimizer_sharding) {
    return absl::StrCat("optimizer sharding ", OptimizerShardingName(strategy.optimizer_sharding));
  }
  if (options.num_stages > 0 && stages != options.num_stages) {
    return absl::StrCat(stages, " stages instead of ", options.num_stages);
  }
  if (options.max_stages > 0 && stages > options.max_stages) {
    return absl::StrCat(stages, " stages, more than ", options.max_stages);
  }
  int64_t first = -1;  // The first of the stages that may share a micro-batch size.
  for (int64_t s = 0; s < stages; ++s) {
    const Stage& stage = strategy.stages[s];
    if (stage.micro_batch == request.mini_batch && IsWhole(request, stage)) continue;
    if (first < 0) first = s;
    if (options.micro_batch > 0 && stage.micro_batch != options.micro_batch) {
      return absl::StrCat("micro-batch ", stage.micro_batch, " in stage ", s, " instead of ",
                          options.micro_batch);
    }
    if (!options.per_stage_micro_batch && stage.micro_batch != strategy.stages[first].micro_batch) {
      return absl::StrCat("different micro-batches in stages ", first, " and ", s);
    }
    if (!options.allow_replicas && stage.devices.size() > 1) {
      return absl::StrCat("replicas in stage ", s);
    }
    if (stage.schedule.k > options.max_k) {
      return absl::StrCat("k = ", stage.schedule.k, " in stage ", s, ", more than ", options.max_k);
    }
  }
  return BrokenSchedule(options, strategy);
}

}  // namespace

absl::Status CheckMiniBatch(int64_t samples) {
  if (samples < 1) return Invalid("mini_batch: must be at least 1 sample, is ", samples);
  if (samples <= kMostMiniBatch) return absl::OkStatus();
  return Invalid("mini_batch: must be at most ", kMostMiniBatch, " samples, is ", samples);
}

absl::Status CheckProblem(const PlanRequest& request) {
  if (request.graph == nullptr) return Invalid("graph: missing");
  if (request.cluster == nullptr) return Invalid("cluster: missing");
  RETURN_IF_ERROR(CheckMiniBatch(request.mini_batch));
  if (IsMixed(request.precision) && !request.graph->executable()) {
    return Invalid("precision: times of the graph were measured, in the precision of then; ",
                   "leave it at \"graph\"");
  }
  return Check(request.precision, *request.graph, request.options.asynchronous);
}

absl::Status CheckOptions(const PlanRequest& request) {
  const PlanOptions& options = request.options;
  if (options.micro_batch < 0) {
    return Invalid("options.micro_batch: must not be negative, is ", options.micro_batch);
  }
  if (options.micro_batch > 0 && request.mini_batch % options.micro_batch != 0) {
    return Invalid("options.micro_batch: ", options.micro_batch, " does not divide mini_batch ",
                   request.mini_batch);
  }
  if (options.num_stages < 0) {
    return Invalid("options.num_stages: must not be negative, is ", options.num_stages);
  }
  if (options.max_stages < 0) {
    return Invalid("options.max_stages: must not be negative, is ", options.max_stages);
  }
  if (options.max_stages > 0 && options.num_stages > options.max_stages) {
    return Invalid("options.num_stages: ", options.num_stages, " is more than options.max_stages ",
                   options.max_stages);
  }
  if (options.max_k < 1) {
    return Invalid("options.max_k: must be at least 1, is ", options.max_k);
  }
  if (options.effort < 1 || options.effort > kMostSearchEffort) {
    return Invalid("options.effort: must be between 1 and ", kMostSearchEffort, ", is ",
                   options.effort);
  }
  if (options.max_loops < 0) {
    return Invalid("options.max_loops: must not be negative, is ", options.max_loops);
  }
  if (!options.try_splits && !options.splits.empty()) {
    return WithField(Invalid("options.split_operators: names operators to cut and forbids it"),
                     "options.splits");
  }
  if (options.vertical_sync && !options.asynchronous) {
    return Invalid("options.vertical_sync: needs options.asynchronous; in synchronous schedules ",
                   "all stages use the same weights anyway");
  }
  if (options.bucket_bytes < 0) {
    return Invalid("options.bucket_bytes: must not be negative, is ", options.bucket_bytes);
  }
  if (options.asynchronous &&
      options.optimizer_sharding.value_or(OptimizerSharding::kNone) != OptimizerSharding::kNone) {
    return Invalid("options.optimizer_sharding: is of synchronous plans; with ",
                   "options.asynchronous every replica keeps the optimizer's state whole");
  }
  return absl::OkStatus();
}

absl::Status CheckOutcome(const PlanRequest& request, const std::string& planner,
                          const Outcome& outcome) {
  const char* termination = TerminationName(outcome.termination);
  const bool claims_plan =
      outcome.termination == Termination::kOptimal || outcome.termination == Termination::kFeasible;
  if (claims_plan && !outcome.strategy) {
    return absl::InternalError(
        absl::StrCat("planner '", planner, "' claims ", termination, " without a strategy"));
  }
  if (!outcome.strategy) return absl::OkStatus();
  if (outcome.termination == Termination::kInfeasible) {
    return absl::InternalError(
        absl::StrCat("planner '", planner, "' claims ", termination, " and gives a strategy"));
  }
  const std::string broken = BrokenPromise(request, planner, *outcome.strategy);
  if (broken.empty()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("planner '", planner, "' gave ", broken, ", against the request"));
}

std::string OptionsText(const PlanRequest& request) {
  const PlanOptions& options = request.options;
  return absl::StrCat(
      "mini_batch=", request.mini_batch, " optimizer=", NameIn(kOptimizerNames, request.optimizer),
      " micro_batch=", NumberOrAny(options.micro_batch),
      " max_stages=", NumberOrAny(options.max_stages),
      " num_stages=", NumberOrAny(options.num_stages),
      " replicas=", options.allow_replicas ? "yes" : "no",
      " per_stage_micro_batch=", options.per_stage_micro_batch ? "yes" : "no",
      " max_k=", options.max_k, " recompute=", PolicyName(options.recompute),
      " max_loops=", NumberOrAny(options.max_loops),
      " split_backward=", options.split_backward ? "yes" : "no",
      " sequential=", options.sequential ? "yes" : "no",
      " asynchronous=", options.asynchronous ? "yes" : "no",
      " vertical_sync=", options.vertical_sync ? "yes" : "no", " seed=", options.seed,
      options.effort == 1 ? "" : absl::StrCat(" effort=", options.effort),
      " batch_statistics=", BatchStatisticsName(options.batch_statistics),
      options.optimizer_sharding == OptimizerSharding::kNone
          ? ""
          : absl::StrCat(" optimizer_sharding=",
                         options.optimizer_sharding.has_value()
                             ? OptimizerShardingName(*options.optimizer_sharding)
                             : "auto"),
      options.bucket_bytes == 0 ? "" : absl::StrCat(" bucket_bytes=", options.bucket_bytes),
      options.try_splits ? "" : " split_operators=off",
      options.splits.empty()
          ? ""
          : absl::StrCat(" split_operators=", OperatorSplitsText(options.splits)),
      IsMixed(request.precision)
          ? absl::StrCat(" precision=", NameIn(kPrecisionNames, request.precision))
          : "",
      options.manual.empty() ? "" : absl::StrCat(" manual=", options.manual.size(), "_bytes"));
}

}  // namespace stagewright
