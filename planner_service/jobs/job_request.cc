#include "planner_service/jobs/job_request.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/artifacts/artifact_name.h"
#include "common/base/error_details.h"
#include "common/data/sample_lengths.h"
#include "common/training/field_check.h"
#include "planner_service/front_door/check_unplaced.h"
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
  if (request.steps > kMostTrainedSamples / request.mini_batch) {
    return Invalid("steps", "times spec.mini_batch must be at most ", kMostTrainedSamples,
                   " samples");
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(const JobRequest& request, bool asynchronous) {
  if (request.lengths->empty() || !asynchronous) return absl::OkStatus();
  return Invalid("graph.lengths",
                 "cannot be trained by an asynchronous plan, in which the passes of several steps "
                 "run beside each other");
}

absl::Status CheckRecords(const JobRequest& request, bool asynchronous) {
  const RecordsRequest& records = request.records;
  RETURN_IF_ERROR(CheckNotNegative(kSpec, "records.steps", records.steps));
  if (records.steps == 0 && !records.compare_with.empty())
    return Invalid("records.compare_with", "needs spec.records.steps");
  if (records.steps > 0 && asynchronous) {
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

// What the front door calls a question's fields, as they are called in a job's.
std::string InSpec(absl::string_view field) {
  return absl::StrCat(kSpec, absl::StartsWith(field, "options.") ? "plan_" : "", field);
}

// How it is to be planned, or by which plan, as far as that can be told without devices, and
// whether that will be asynchronous.
absl::StatusOr<bool> CheckPlan(const JobRequest& request) {
  PlanRequest question;
  question.graph = request.graph.get();
  question.lengths = request.lengths.get();
  question.planner = request.planner;
  question.mini_batch = request.mini_batch;
  question.optimizer = request.training.optimizer.kind;
  question.precision = request.training.precision;
  question.options = request.options;
  const Strategy* given = request.strategy.has_value() ? &*request.strategy : nullptr;
  const absl::StatusOr<bool> asynchronous = CheckUnplaced(question, given, request.num_devices);
  if (asynchronous.ok()) return asynchronous;
  const absl::Status& wrong = asynchronous.status();
  const std::string message =
      InSpec(absl::StrReplaceAll(wrong.message(), {{" options.", " spec.plan_options."}}));
  return WithField(absl::InvalidArgumentError(message), InSpec(DetailsOf(wrong).field));
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
  RETURN_IF_ERROR(CheckNotNegative(kSpec, "max_restarts", int64_t{request.max_restarts}));
  if (request.priority < -kMostPriority || request.priority > kMostPriority)
    return Invalid("priority", "must be from -", kMostPriority, " to ", kMostPriority);
  RETURN_IF_ERROR(CheckPlanner(request.planner));
  ASSIGN_OR_RETURN(const bool asynchronous, CheckPlan(request));
  RETURN_IF_ERROR(CheckLengths(request, asynchronous));
  RETURN_IF_ERROR(CheckRecords(request, asynchronous));
  return Check(request.training,
               {*request.graph, asynchronous, !request.evaluation_data_path.empty()}, kSpec);
}

}  // namespace stagewright
