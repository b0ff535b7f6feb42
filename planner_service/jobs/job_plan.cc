#include "planner_service/jobs/job_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/cost/parameters.h"
#include "common/lowering/lower.h"
#include "common/memory/message_buffers.h"
#include "common/validation/validate.h"
#include "planner_service/drift/measured_costs.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/front_door/judge_lengths.h"
#include "planner_service/front_door/plan_warnings.h"
#include "planner_service/front_door/request_costs.h"

namespace stagewright {
namespace {

// Forward passes over the same stages, proven as the training programs are: one for each length.
// What training holds throughout stays where it is meanwhile, so it counts.
absl::StatusOr<std::vector<Program>> EvaluationPrograms(const std::vector<const Graph*>& graphs,
                                                        const Strategy& strategy,
                                                        const Cluster& cluster,
                                                        const Program& training,
                                                        const PlanRequest& request) {
  std::vector<Program> programs;
  std::vector<Program*> each;
  programs.reserve(graphs.size());
  for (const Graph* graph : graphs) {
    const auto costs = MakeCosts(request, *graph);
    ASSIGN_OR_RETURN(Program program, Lower(*graph, strategy, *costs,
                                            {.optimizer = request.optimizer, .training = false}));
    for (DeviceProgram& device : program.devices) {
      for (const DeviceProgram& trained : training.devices) {
        if (trained.device == device.device)
          device.resident = trained.resident +
                            BufferBytes(MessageTypes(*graph, request.precision), program, device);
      }
    }
    programs.push_back(std::move(program));
    each.push_back(&programs.back());
  }
  HoldBuffersOfAll(graphs, request.precision, each);
  std::vector<Bytes> budgets;
  for (const Device& device : cluster.devices()) budgets.push_back(device.memory);
  for (const Program& program : programs) {
    if (absl::Status status = Validate(program, budgets); !status.ok())
      return Annotate(status, "evaluation");
  }
  return programs;
}

}  // namespace

std::vector<DeviceId> WorkingDevices(const Strategy& strategy) {
  std::set<DeviceId> devices;
  for (const Stage& stage : strategy.stages)
    devices.insert(stage.devices.begin(), stage.devices.end());
  return {devices.begin(), devices.end()};
}

Strategy Renumbered(Strategy strategy, const std::vector<DeviceId>& devices) {
  const auto renumber = [&](DeviceId& device) {
    const auto place = std::lower_bound(devices.begin(), devices.end(), device);
    device = DeviceId(place - devices.begin());
  };
  for (Stage& stage : strategy.stages)
    std::for_each(stage.devices.begin(), stage.devices.end(), renumber);
  for (DeviceOrder& order : strategy.orders) renumber(order.device);
  return strategy;
}

absl::StatusOr<JobPlan> PlanJob(const JobRequest& job, const Cluster& cluster,
                                const OperatorProfile& profile, const std::string& default_planner,
                                SearchContext& context) {
  const Graph& graph = *job.graph;
  PlanRequest request;
  request.graph = &graph;
  request.lengths = job.lengths.get();
  request.cluster = &cluster;
  request.planner = job.planner.empty() ? default_planner : job.planner;
  request.mini_batch = job.mini_batch;
  request.optimizer = job.training.optimizer.kind;
  request.options = job.options;
  request.profile = profile.empty() ? nullptr : &profile;
  request.precision = job.training.precision;
  request.gradient_norm = NeedsGradientNorm(job.training);
  request.timeline = true;
  request.compare_sequential = true;

  JobPlan plan;
  for (int32_t d = 0; d < cluster.size(); ++d) plan.devices.push_back(DeviceId(d));
  if (job.strategy.has_value()) {
    ASSIGN_OR_RETURN(plan.best, JudgeStrategy(request, *job.strategy, "given"));
    const SplitGraphs* split = plan.best.split_graphs.get();
    plan.warnings =
        StrategyWarnings(split == nullptr ? graph : split->graph, cluster, plan.best.plan.strategy);
  } else {
    ASSIGN_OR_RETURN(PlanResponse response, SolvePlan(request, context));
    if (!response.best.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat("no plan: ", response.reason));
    }
    plan.best = *std::move(response.best);
    plan.sequential = std::move(response.sequential);
    plan.warnings = std::move(response.warnings);
  }
  const SplitGraphs* split = plan.best.split_graphs.get();
  plan.operators = ExpectedOperators(plan.best.plan.program, cluster,
                                     *MakeCosts(request, split == nullptr ? graph : split->graph));
  if (!job.evaluation_data_path.empty()) {
    std::vector<const Graph*> graphs = {split == nullptr ? &graph : &split->graph};
    for (const Graph& length : split == nullptr ? *job.lengths : split->lengths)
      graphs.push_back(&length);
    const Plan& training = plan.best.plan;
    ASSIGN_OR_RETURN(plan.evaluations, EvaluationPrograms(graphs, training.strategy, cluster,
                                                          training.program, request));
  }
  return plan;
}

absl::StatusOr<JobPlan> WithoutIdleDevices(JobPlan plan, const JobRequest& job,
                                           const Cluster& cluster, const OperatorProfile& profile) {
  const Plan& best = plan.best.plan;
  const std::vector<DeviceId> devices = WorkingDevices(best.strategy);
  if (devices.size() == plan.devices.size()) return plan;
  JobRequest given = job;
  given.strategy = Renumbered(best.strategy, devices);
  SearchContext no_search;
  absl::StatusOr<JobPlan> tight =
      PlanJob(given, Subcluster(cluster, devices), profile, best.provenance.planner, no_search);
  if (!tight.ok()) return plan;  // Better with devices that have nothing to do than not at all.
  tight->devices = devices;
  tight->best.plan.provenance.planner = best.provenance.planner;
  tight->sequential = std::move(plan.sequential);
  tight->warnings = std::move(plan.warnings);
  return tight;
}

absl::StatusOr<JobPlan> PlanJobTightly(const JobRequest& job, const Cluster& cluster,
                                       const OperatorProfile& profile,
                                       const std::string& default_planner, SearchContext& context) {
  ASSIGN_OR_RETURN(JobPlan plan, PlanJob(job, cluster, profile, default_planner, context));
  return WithoutIdleDevices(std::move(plan), job, cluster, profile);
}

}  // namespace stagewright
