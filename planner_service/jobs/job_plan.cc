#include "planner_service/jobs/job_plan.h"

#include <utility>

#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "common/lowering/lower.h"
#include "common/memory/message_buffers.h"
#include "common/validation/validate.h"
#include "common/wire/graph_proto.h"
#include "common/wire/strategy_proto.h"
#include "planner_service/front_door/front_door.h"
#include "planner_service/front_door/judge_lengths.h"
#include "planner_service/front_door/plan_warnings.h"
#include "planner_service/wire/plan_proto.h"

namespace stagewright {
namespace {

// Forward passes over the same stages, proven as the training programs are: one for each length.
// What training holds throughout stays where it is meanwhile, so it counts.
absl::StatusOr<std::vector<Program>> EvaluationPrograms(const std::vector<const Graph*>& graphs,
                                                        const Strategy& strategy,
                                                        const Cluster& cluster,
                                                        const Program& training,
                                                        Optimizer optimizer) {
  std::vector<Program> programs;
  std::vector<Program*> each;
  programs.reserve(graphs.size());
  for (const Graph* graph : graphs) {
    const auto costs = MakeAnalyticCostModel(*graph);
    ASSIGN_OR_RETURN(Program program,
                     Lower(*graph, strategy, *costs, {.optimizer = optimizer, .training = false}));
    for (DeviceProgram& device : program.devices) {
      for (const DeviceProgram& trained : training.devices) {
        if (trained.device == device.device)
          device.resident = trained.resident + BufferBytes(*graph, program, device);
      }
    }
    programs.push_back(std::move(program));
    each.push_back(&programs.back());
  }
  HoldBuffersOfAll(graphs, each);
  std::vector<Bytes> budgets;
  for (const Device& device : cluster.devices()) budgets.push_back(device.memory);
  for (const Program& program : programs) {
    if (absl::Status status = Validate(program, budgets); !status.ok())
      return Annotate(status, "evaluation");
  }
  return programs;
}

}  // namespace

absl::StatusOr<JobPlan> PlanJob(const v1::JobSpec& spec, const Cluster& cluster,
                                const std::string& default_planner, SearchContext& context) {
  ASSIGN_OR_RETURN(Graph graph, FromProto(spec.graph()));
  ASSIGN_OR_RETURN(const std::vector<Graph> lengths, LengthsFromProto(spec.graph(), graph));
  PlanRequest request;
  request.graph = &graph;
  request.lengths = &lengths;
  request.cluster = &cluster;
  request.planner = spec.planner().empty() ? default_planner : spec.planner();
  request.mini_batch = spec.mini_batch();
  request.optimizer = FromProto(spec.optimizer().kind());
  request.options = FromProto(spec.plan_options());
  request.gradient_norm = spec.optimizer().max_gradient_norm() > 0 ||
                          spec.on_nan() == v1::NAN_POLICY_SKIP ||
                          spec.precision() == v1::PRECISION_FP16;
  request.timeline = true;
  request.compare_sequential = true;

  JobPlan plan;
  Strategy strategy;
  if (spec.has_strategy()) {
    Strategy given = FromProto(spec.strategy());
    if (spec.plan_options().batch_statistics() != v1::BATCH_STATISTICS_UNSPECIFIED)
      given.batch_statistics = request.options.batch_statistics;
    ASSIGN_OR_RETURN(JudgedPlan judged, JudgeStrategy(request, given, "given"));
    strategy = judged.plan.strategy;
    plan.warnings = StrategyWarnings(graph, cluster, strategy);
    plan.best = ToProto(judged, cluster);
  } else {
    ASSIGN_OR_RETURN(PlanResponse response, SolvePlan(request, context));
    if (!response.best.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat("no plan: ", response.reason));
    }
    strategy = response.best->plan.strategy;
    plan.warnings = std::move(response.warnings);
    plan.best = ToProto(*response.best, cluster);
    if (response.sequential.has_value()) {
      plan.sequential = ToProto(*response.sequential, cluster);
      plan.sequential->mutable_evaluation()->clear_timeline();
    }
  }
  if (!spec.evaluation_data_path().empty()) {
    ASSIGN_OR_RETURN(Program training, FromProto(plan.best.program()));
    std::vector<const Graph*> graphs = {&graph};
    for (const Graph& length : lengths) graphs.push_back(&length);
    ASSIGN_OR_RETURN(const std::vector<Program> programs,
                     EvaluationPrograms(graphs, strategy, cluster, training, request.optimizer));
    plan.evaluation_program = ToProto(programs.front());
    for (size_t i = 1; i < programs.size(); ++i)
      plan.length_evaluation_programs.push_back(ToProto(programs[i]));
  }
  return plan;
}

}  // namespace stagewright
