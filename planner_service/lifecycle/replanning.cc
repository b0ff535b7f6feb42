#include "planner_service/lifecycle/replanning.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "common/wire/graph_proto.h"
#include "common/wire/job_state.h"
#include "common/wire/strategy_proto.h"
#include "common/wire/topology_proto.h"
#include "planner_service/drift/measured_costs.h"
#include "planner_service/front_door/request_costs.h"
#include "planner_service/jobs/job_cluster.h"
#include "planner_service/jobs/job_plan.h"
#include "planner_service/jobs/job_proto.h"
#include "planner_service/lifecycle/changeover.h"
#include "planner_service/lifecycle/job_queue.h"
#include "planner_service/profiles/profile_choice.h"
#include "planner_service/wire/plan_proto.h"

namespace stagewright {
namespace {

// The job's own devices in their order, then free ones that are open to jobs, as many as it may
// have.
absl::StatusOr<std::vector<RegisteredDevice>> Candidates(
    const Job& job, const std::vector<RegisteredDevice>& connected, size_t most) {
  std::vector<RegisteredDevice> candidates;
  for (const std::string& name : job.devices) {
    const auto own = std::find_if(
        connected.begin(), connected.end(),
        [&](const RegisteredDevice& device) { return device.QualifiedName() == name; });
    if (own == connected.end())
      return absl::FailedPreconditionError(absl::StrCat("device ", name, " is not connected"));
    candidates.push_back(*own);
  }
  for (const RegisteredDevice& device : connected) {
    const bool open = device.job.empty() && device.available;
    if (open && (most == 0 || candidates.size() < most)) candidates.push_back(device);
  }
  return candidates;
}

}  // namespace

absl::Status NotRunning(int64_t job, JobState state) {
  return absl::FailedPreconditionError(
      absl::StrCat("jobs/", job, " is not running: it is ", JobStateName(ToProto(state))));
}

absl::StatusOr<ReplanProblem> ProblemOf(const JobRecord& record,
                                        const std::vector<RegisteredDevice>& connected, size_t most,
                                        const LinkTable& links, const OperatorProfile& known) {
  const Job& job = record.job;
  const auto refuse = [&](const auto&... why) {
    return absl::FailedPreconditionError(absl::StrCat(job.name(), " ", why...));
  };
  if (job.state != JobState::kRunning) return NotRunning(job.number, job.state);
  if (IsAsynchronous(job))
    return refuse("is asynchronous: its steps overlap, so that they are not measured apart");
  if (!job.request->lengths->empty())
    return refuse("has samples of several lengths, whose steps are not measured apart");
  if (record.replanning != nullptr) return refuse("is being planned anew already");
  if (record.changeover.has_value()) return refuse("is about to change its plan already");
  if (!record.measured.has_value())
    return refuse("has no measured steps yet: try again when it has done a few more");
  ASSIGN_OR_RETURN(const std::vector<RegisteredDevice> devices, Candidates(job, connected, most));
  ASSIGN_OR_RETURN(Cluster cluster, JobCluster(devices, links));
  ReplanProblem problem;
  problem.number = job.number;
  problem.generation = job.generation;
  problem.job = job.name();
  problem.account = AccountOf(job).Text();
  problem.request = job.request;
  problem.planned_graph = job.planned_graph;
  problem.plan = job.plan;
  for (const RegisteredDevice& device : devices) problem.devices.push_back(device.QualifiedName());
  problem.cluster = std::make_shared<const Cluster>(std::move(cluster));
  problem.profile = ProfileOf(devices, *problem.cluster, known);
  problem.measured = *record.measured;
  return problem;
}

v1::ReplanJobResponse ToProto(const ReplanProblem& problem, const ReplanResult& result,
                              const JobMetrics& metrics) {
  v1::ReplanJobResponse response;
  *response.mutable_present() = result.present;
  if (result.found.has_value()) *response.mutable_better() = *result.found;
  for (const std::string& device : problem.devices) response.add_devices(device);
  response.set_measured_step_ns(metrics.recent_step_time.count());
  response.set_predicted_step_ns(metrics.predicted_step_time.count());
  response.set_message(result.message);
  return response;
}

absl::StatusOr<ReplanResult> PlanAnew(const ReplanProblem& problem,
                                      const std::string& default_planner) {
  const JobRequest& request = *problem.request;
  ASSIGN_OR_RETURN(const Program program, FromProto(problem.plan->program()));
  const Strategy strategy = FromProto(problem.plan->strategy());
  std::optional<Graph> split;
  if (!strategy.splits.empty()) {
    ASSIGN_OR_RETURN(Graph graph, FromProto(*problem.planned_graph));
    split = std::move(graph);
  }
  const Graph& graph = split.has_value() ? *split : *request.graph;
  PlanRequest planned_by;
  planned_by.graph = &graph;
  planned_by.cluster = problem.cluster.get();
  planned_by.profile = problem.profile.empty() ? nullptr : &problem.profile;
  planned_by.precision = request.training.precision;
  const std::unique_ptr<CostModel> costs = MakeCosts(planned_by, graph);
  const std::string day = absl::FormatCivilTime(absl::ToCivilDay(absl::Now(), absl::UTCTimeZone()));
  const MeasuredCosts measured = CostsAsMeasured(
      {graph, program, *problem.cluster, *costs, problem.profile, request.training.optimizer.kind},
      problem.measured.actions, problem.measured.operators, absl::StrCat("steps of ", problem.job),
      day);

  JobRequest present = request;
  present.strategy = strategy;
  ASSIGN_OR_RETURN(const JobPlan now, PlanJob(present, measured.cluster, measured.profile,
                                              default_planner, *problem.context));
  JobRequest anew = request;
  anew.strategy.reset();
  if (anew.planner == kManualPlanner) anew.planner.clear();
  auto found = PlanJob(anew, measured.cluster, measured.profile, default_planner, *problem.context);
  ReplanResult result;
  result.present = ToProto(now.best, measured.cluster);
  result.present.mutable_evaluation()->clear_timeline();
  if (!found.ok()) {
    if (!absl::IsFailedPrecondition(found.status())) return found.status();
    result.message = absl::StrCat("there is no better plan: ", found.status().message());
    return result;
  }
  const Nanos before = now.best.evaluation.iteration_time;
  const Nanos after = found->best.evaluation.iteration_time;
  const double gain = 1 - static_cast<double>(after) / static_cast<double>(before);
  if (gain < kLeastGain) {
    result.message = absl::StrCat(
        "there is no better plan: by measured costs a step of the present one takes ",
        FormatDuration(before), ", of the best that was found ", FormatDuration(after));
    return result;
  }
  result.found = ToProto(found->best, measured.cluster);
  result.found->mutable_evaluation()->clear_timeline();
  ASSIGN_OR_RETURN(const JobPlan tight,
                   WithoutIdleDevices(*std::move(found), anew, measured.cluster, measured.profile));
  result.better = ToProto(tight, measured.cluster);
  result.message = absl::StrFormat("by measured costs a step takes %s instead of %s (%.0f %% less)",
                                   FormatDuration(after), FormatDuration(before), gain * 100);
  return result;
}

}  // namespace stagewright
