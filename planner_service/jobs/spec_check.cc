#include "planner_service/jobs/spec_check.h"

#include <algorithm>

#include "common/training/field_check.h"
#include "common/wire/graph_proto.h"
#include "common/wire/training_proto.h"
#include "planner_service/front_door/front_door.h"

namespace stagewright {
namespace {

template <typename... What>
absl::Status Wrong(absl::string_view field, const What&... what) {
  return WrongField("spec.", field, what...);
}

bool IsAsynchronous(const v1::JobSpec& spec) {
  return spec.plan_options().asynchronous() || spec.strategy().asynchronous();
}

absl::Status CheckRecords(const v1::JobSpec& spec) {
  const v1::StepRecords& records = spec.records();
  if (records.steps() < 0) return Wrong("records.steps", "must not be negative");
  if (records.steps() == 0 && !records.compare_with().empty())
    return Wrong("records.compare_with", "needs spec.records.steps");
  if (records.steps() > 0 && IsAsynchronous(spec)) {
    return Wrong("records",
                 "cannot be kept of an asynchronous plan: it updates with gradients of older "
                 "weights, so its steps are not those of a single device");
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
  ASSIGN_OR_RETURN(const TrainingSpec training, TrainingFromProto(spec));
  RETURN_IF_ERROR(Check(
      training, {*graph, IsAsynchronous(spec), !spec.evaluation_data_path().empty()}, "spec."));
  if (spec.max_restarts() < 0) return Wrong("max_restarts", "must not be negative");
  if (spec.plan_options().vertical_sync() && !spec.plan_options().asynchronous())
    return Wrong("plan_options.vertical_sync", "needs spec.plan_options.asynchronous");
  RETURN_IF_ERROR(CheckRecords(spec));
  if (!spec.planner().empty()) {
    const auto planners = ListPlanners();
    if (std::none_of(planners.begin(), planners.end(),
                     [&](const PlannerInfo& info) { return info.name == spec.planner(); })) {
      return Wrong("planner", "\"", spec.planner(), "\" is not known");
    }
  }
  return absl::OkStatus();
}

}  // namespace stagewright
