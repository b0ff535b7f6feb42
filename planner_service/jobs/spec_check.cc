#include "planner_service/jobs/spec_check.h"

#include <algorithm>
#include <cmath>

#include "common/wire/graph_proto.h"
#include "planner_service/planner/front_door.h"

namespace stagewright {
namespace {

absl::Status Wrong(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("spec.", field, " ", what));
}

absl::Status CheckOptimizer(const v1::OptimizerConfig& optimizer) {
  if (optimizer.kind() == v1::OPTIMIZER_UNSPECIFIED) return Wrong("optimizer.kind", "is not set");
  if (!(optimizer.learning_rate() > 0) || !std::isfinite(optimizer.learning_rate())) {
    return Wrong("optimizer.learning_rate", "must be positive and finite");
  }
  if (!(optimizer.weight_decay() >= 0) || !std::isfinite(optimizer.weight_decay())) {
    return Wrong("optimizer.weight_decay", "must not be negative");
  }
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

}  // namespace

absl::Status CheckSpec(const v1::JobSpec& spec) {
  if (!spec.has_graph()) return Wrong("graph", "is not set");
  auto graph = FromProto(spec.graph());
  if (!graph.ok()) return Annotate(graph.status(), "spec.graph");
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
