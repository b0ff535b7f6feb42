#include "planner_service/jobs/job_request.h"

#include <algorithm>

#include "common/artifacts/artifact_name.h"
#include "common/training/field_check.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/jobs/job_plan.h"

namespace stagewright {
namespace {

constexpr absl::string_view kSpec = "spec.";

template <typename... What>
absl::Status Invalid(absl::string_view field, const What&... what) {
  return WrongField(kSpec, field, what...);
}

absl::Status CheckData(const JobRequest& request) {
  if (request.graph == nullptr) return Invalid("graph", "is not set");
  if (!request.graph->executable()) {
    return Invalid("graph",
                   "cannot be trained: it carries costs without arguments, or has no loss");
  }
  if (!request.lengths->empty() && request.asynchronous()) {
    return Invalid(
        "graph.lengths",
        "cannot be trained by an asynchronous plan, in which the passes of several steps "
        "run beside each other");
  }
  if (request.weights_path.empty()) return Invalid("weights_path", "is not set");
  if (IsArtifactName(request.weights_path)) {
    const absl::Status name = CheckArtifactName(request.weights_path);
    if (!name.ok()) return Invalid("weights_path", "is not right: ", name.message());
  }
  if (request.data_path.empty()) return Invalid("data_path", "is not set");
  if (request.output_path.empty()) return Invalid("output_path", "is not set");
  if (request.mini_batch <= 0) return Invalid("mini_batch", "must be positive");
  if (request.steps < 0 || request.epochs < 0 || (request.steps > 0) == (request.epochs > 0))
    return Invalid("steps", "and spec.epochs: exactly one must be positive");
  return absl::OkStatus();
}

absl::Status CheckRecords(const JobRequest& request) {
  const RecordsRequest& records = request.records;
  RETURN_IF_ERROR(CheckNotNegative(kSpec, "records.steps", records.steps));
  if (records.steps == 0 && !records.compare_with.empty())
    return Invalid("records.compare_with", "needs spec.records.steps");
  if (records.steps > 0 && request.asynchronous()) {
    return Invalid("records",
                   "cannot be kept of an asynchronous plan: it updates with gradients of older "
                   "weights, so its steps are not those of a single device");
  }
  return absl::OkStatus();
}

absl::Status CheckPlanner(const std::string& planner) {
  if (planner.empty()) return absl::OkStatus();
  const auto planners = ListPlanners();
  if (std::any_of(planners.begin(), planners.end(),
                  [&](const PlannerInfo& info) { return info.name == planner; }))
    return absl::OkStatus();
  return Invalid("planner", "\"", planner, "\" is not known");
}

}  // namespace

size_t PlannedDevices(const JobRequest& request) {
  if (!request.named_devices.empty()) return request.named_devices.size();
  return request.found && request.strategy ? WorkingDevices(*request.strategy).size() : 0;
}

absl::Status WrongNumber(const JobRequest& request) {
  const size_t planned = PlannedDevices(request);
  return Invalid("num_devices", "is ", request.num_devices, ", but the plan is for ", planned,
                 planned == 1 ? " device" : " devices");
}

absl::Status Check(const JobRequest& request) {
  RETURN_IF_ERROR(CheckData(request));
  RETURN_IF_ERROR(CheckNotNegative(kSpec, "num_devices", int64_t{request.num_devices}));
  if (static_cast<size_t>(request.num_devices) < PlannedDevices(request))
    return WrongNumber(request);
  if (request.step_timeout < absl::ZeroDuration())
    return Invalid("step_timeout_ns", "must not be negative");
  RETURN_IF_ERROR(Check(
      request.training,
      {*request.graph, request.asynchronous(), !request.evaluation_data_path.empty()}, kSpec));
  RETURN_IF_ERROR(CheckNotNegative(kSpec, "max_restarts", int64_t{request.max_restarts}));
  if (request.priority < -kMostPriority || request.priority > kMostPriority)
    return Invalid("priority", "must be from -", kMostPriority, " to ", kMostPriority);
  if (request.options.vertical_sync && !request.options.asynchronous)
    return Invalid("plan_options.vertical_sync", "needs spec.plan_options.asynchronous");
  RETURN_IF_ERROR(CheckRecords(request));
  return CheckPlanner(request.planner);
}

}  // namespace stagewright
