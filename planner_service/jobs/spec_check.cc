#include "planner_service/jobs/spec_check.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>

#include "common/wire/graph_proto.h"
#include "planner_service/front_door/front_door.h"

namespace stagewright {
namespace {

absl::Status Wrong(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("spec.", field, " ", what));
}

bool NotNegative(double value) { return value >= 0 && std::isfinite(value); }

absl::Status CheckSchedule(const v1::LearningRateSchedule& schedule) {
  const std::string of = "optimizer.schedule.";
  if (schedule.warmup_steps() < 0) return Wrong(of + "warmup_steps", "must not be negative");
  switch (schedule.decay()) {
    case v1::LEARNING_RATE_DECAY_UNSPECIFIED:
    case v1::LEARNING_RATE_DECAY_CONSTANT:
      return absl::OkStatus();
    case v1::LEARNING_RATE_DECAY_LINEAR:
    case v1::LEARNING_RATE_DECAY_COSINE:
      if (schedule.decay_steps() < 0 ||
          (schedule.decay_steps() > 0 && schedule.decay_steps() < schedule.warmup_steps()))
        return Wrong(of + "decay_steps", "must be 0 or not less than warmup_steps");
      if (!(schedule.end_factor() >= 0 && schedule.end_factor() <= 1))
        return Wrong(of + "end_factor", "must lie in [0, 1]");
      return absl::OkStatus();
    case v1::LEARNING_RATE_DECAY_STEP:
      if (schedule.every() < 1) return Wrong(of + "every", "must be positive");
      if (!(schedule.gamma() > 0) || !std::isfinite(schedule.gamma()))
        return Wrong(of + "gamma", "must be positive and finite");
      return absl::OkStatus();
    default:
      return Wrong(of + "decay", "is not known");
  }
}

bool Matches(const std::string& pattern, const Parameter& parameter) {
  const auto matches = [&](const std::string& name) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  };
  return parameter.trainable &&
         (matches(parameter.name) ||
          std::any_of(parameter.aliases.begin(), parameter.aliases.end(), matches));
}

absl::Status CheckGroups(const Graph& graph, const v1::OptimizerConfig& optimizer) {
  for (int i = 0; i < optimizer.groups_size(); ++i) {
    const v1::ParameterGroup& group = optimizer.groups(i);
    const std::string of = absl::StrCat("optimizer.groups[", i, "].");
    const auto& parameters = graph.parameters();
    if (std::none_of(parameters.begin(), parameters.end(),
                     [&](const Parameter& p) { return Matches(group.pattern(), p); })) {
      return Wrong(of + "pattern", absl::StrCat("\"", group.pattern(),
                                                "\" matches no trainable parameter of the graph"));
    }
    if (!NotNegative(group.weight_decay()))
      return Wrong(of + "weight_decay", "must not be negative");
    if (!NotNegative(group.learning_rate_scale()))
      return Wrong(of + "learning_rate_scale", "must not be negative");
  }
  return absl::OkStatus();
}

// Evaluations during training, and what they decide.
absl::Status CheckEvaluations(const v1::JobSpec& spec) {
  if (spec.evaluate_every() < 0) return Wrong("evaluate_every", "must not be negative");
  if (spec.evaluate_every() > 0 && spec.evaluation_data_path().empty())
    return Wrong("evaluate_every", "needs spec.evaluation_data_path");
  if (spec.patience() < 0) return Wrong("patience", "must not be negative");
  if (spec.patience() > 0 && spec.evaluate_every() == 0)
    return Wrong("patience", "needs spec.evaluate_every");
  if (!NotNegative(spec.min_delta())) return Wrong("min_delta", "must not be negative");
  return absl::OkStatus();
}

absl::Status CheckCheckpoints(const v1::JobSpec& spec) {
  const v1::CheckpointPolicy& policy = spec.checkpoints();
  if (policy.every_steps() < 0) return Wrong("checkpoints.every_steps", "must not be negative");
  if (policy.every_ns() < 0) return Wrong("checkpoints.every_ns", "must not be negative");
  if (policy.keep() < 0) return Wrong("checkpoints.keep", "must not be negative");
  if (spec.max_restarts() < 0) return Wrong("max_restarts", "must not be negative");
  if (spec.has_checkpoints()) {
    if (policy.every_steps() == 0 && policy.every_ns() == 0)
      return Wrong("checkpoints", "needs every_steps or every_ns");
    if (spec.plan_options().asynchronous() || spec.strategy().asynchronous()) {
      return Wrong("checkpoints",
                   "cannot be taken of an asynchronous plan, which has no state between steps");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOptimizer(const v1::OptimizerConfig& optimizer) {
  if (optimizer.kind() == v1::OPTIMIZER_UNSPECIFIED) return Wrong("optimizer.kind", "is not set");
  if (!(optimizer.learning_rate() > 0) || !std::isfinite(optimizer.learning_rate())) {
    return Wrong("optimizer.learning_rate", "must be positive and finite");
  }
  if (!(optimizer.weight_decay() >= 0) || !std::isfinite(optimizer.weight_decay())) {
    return Wrong("optimizer.weight_decay", "must not be negative");
  }
  if (!NotNegative(optimizer.max_gradient_norm()))
    return Wrong("optimizer.max_gradient_norm", "must not be negative");
  RETURN_IF_ERROR(CheckSchedule(optimizer.schedule()));
  // What the kind does not use is ignored.
  if (optimizer.kind() == v1::OPTIMIZER_SGD_MOMENTUM &&
      !(optimizer.momentum() > 0 && optimizer.momentum() < 1)) {
    return Wrong("optimizer.momentum", "must lie in (0, 1)");
  }
  if (optimizer.kind() != v1::OPTIMIZER_ADAM) return absl::OkStatus();
  const std::pair<const char*, double> decays[] = {{"optimizer.beta1", optimizer.beta1()},
                                                   {"optimizer.beta2", optimizer.beta2()}};
  for (const auto& [field, value] : decays) {
    if (!(value >= 0 && value < 1)) return Wrong(field, "must lie in [0, 1)");
  }
  if (!(optimizer.epsilon() > 0) || !std::isfinite(optimizer.epsilon())) {
    return Wrong("optimizer.epsilon", "must be positive and finite");
  }
  return absl::OkStatus();
}

absl::Status CheckPrecision(const Graph& graph, const v1::JobSpec& spec) {
  if (!v1::Precision_IsValid(spec.precision()))
    return Wrong("precision", absl::StrCat("unknown precision ", spec.precision()));
  const bool fp16 = spec.precision() == v1::PRECISION_FP16;
  if (!fp16 && spec.precision() != v1::PRECISION_BF16) return absl::OkStatus();
  const char* name = fp16 ? "fp16" : "bf16";
  for (const Parameter& parameter : graph.parameters()) {
    if (!parameter.trainable || parameter.dtype == DType::kFloat32) continue;
    return Wrong("precision", absl::StrCat(name, ": mixed precision trains float32 parameters, \"",
                                           parameter.name, "\" is of another type"));
  }
  if (fp16 && (spec.plan_options().asynchronous() || spec.strategy().asynchronous())) {
    return Wrong("precision",
                 "fp16: an asynchronous plan has no point at which all devices agree on the scale "
                 "of the loss; bf16 needs none");
  }
  return absl::OkStatus();
}

absl::Status CheckRecords(const v1::JobSpec& spec) {
  const v1::StepRecords& records = spec.records();
  if (records.steps() < 0) return Wrong("records.steps", "must not be negative");
  if (records.steps() == 0 && !records.compare_with().empty())
    return Wrong("records.compare_with", "needs spec.records.steps");
  if (records.steps() > 0 &&
      (spec.plan_options().asynchronous() || spec.strategy().asynchronous())) {
    return Wrong("records",
                 "cannot be kept of an asynchronous plan: it updates with gradients of older "
                 "weights, so its steps are not those of a single device");
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(const Graph& graph, const v1::JobSpec& spec) {
  const auto lengths = LengthsFromProto(spec.graph(), graph);
  if (!lengths.ok()) return Annotate(lengths.status(), "spec.graph");
  if (!lengths->empty() && (spec.plan_options().asynchronous() || spec.strategy().asynchronous())) {
    return Wrong("graph.lengths",
                 "cannot be trained by an asynchronous plan, in which the passes of several steps "
                 "run beside each other");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSpec(const v1::JobSpec& spec) {
  if (!spec.has_graph()) return Wrong("graph", "is not set");
  auto graph = FromProto(spec.graph());
  if (!graph.ok()) return Annotate(graph.status(), "spec.graph");
  RETURN_IF_ERROR(CheckLengths(*graph, spec));
  if (!graph->executable()) {
    return Wrong("graph", "cannot be trained: it carries costs without arguments, or has no loss");
  }
  if (spec.weights_path().empty()) return Wrong("weights_path", "is not set");
  if (spec.data_path().empty()) return Wrong("data_path", "is not set");
  if (spec.output_path().empty()) return Wrong("output_path", "is not set");
  if (spec.mini_batch() <= 0) return Wrong("mini_batch", "must be positive");
  if (spec.steps() < 0 || spec.epochs() < 0 || (spec.steps() > 0) == (spec.epochs() > 0)) {
    return Wrong("steps", "and spec.epochs: exactly one must be positive");
  }
  if (spec.num_devices() < 0) return Wrong("num_devices", "must not be negative");
  if (spec.step_timeout_ns() < 0) return Wrong("step_timeout_ns", "must not be negative");
  RETURN_IF_ERROR(CheckOptimizer(spec.optimizer()));
  RETURN_IF_ERROR(CheckGroups(*graph, spec.optimizer()));
  if (spec.optimizer().max_gradient_norm() > 0 &&
      (spec.plan_options().asynchronous() || spec.strategy().asynchronous())) {
    return Wrong("optimizer.max_gradient_norm",
                 "cannot be kept by an asynchronous plan, whose gradients are never all there");
  }
  if (spec.plan_options().vertical_sync() && !spec.plan_options().asynchronous())
    return Wrong("plan_options.vertical_sync", "needs spec.plan_options.asynchronous");
  if (!v1::NanPolicy_IsValid(spec.on_nan()))
    return Wrong("on_nan", absl::StrCat("unknown policy ", spec.on_nan()));
  if (spec.on_nan() == v1::NAN_POLICY_SKIP &&
      (spec.plan_options().asynchronous() || spec.strategy().asynchronous())) {
    return Wrong("on_nan", "skip: an asynchronous plan has no point at which all devices agree");
  }
  RETURN_IF_ERROR(CheckPrecision(*graph, spec));
  RETURN_IF_ERROR(CheckEvaluations(spec));
  RETURN_IF_ERROR(CheckCheckpoints(spec));
  RETURN_IF_ERROR(CheckRecords(spec));
  if (!spec.planner().empty()) {
    const auto planners = ListPlanners();
    if (std::none_of(planners.begin(), planners.end(),
                     [&](const PlannerInfo& info) { return info.name == spec.planner(); })) {
      return Wrong("planner", absl::StrCat("\"", spec.planner(), "\" is not known"));
    }
  }
  return absl::OkStatus();
}

}  // namespace stagewright
