#include "planner_service/jobs/job_plan.h"

#include <utility>

#include "common/schedule/lower.h"
#include "common/wire/graph_proto.h"
#include "common/wire/strategy_proto.h"
#include "planner_service/planner/front_door.h"
#include "planner_service/wire/plan_proto.h"

namespace stagewright {

absl::StatusOr<JobPlan> PlanJob(const v1::JobSpec& spec, const Cluster& cluster,
                                const std::string& default_planner, SearchContext& context) {
  ASSIGN_OR_RETURN(Graph graph, FromProto(spec.graph()));
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.planner = spec.planner().empty() ? default_planner : spec.planner();
  request.mini_batch = spec.mini_batch();
  request.optimizer = FromProto(spec.optimizer().kind());
  request.options = FromProto(spec.plan_options());
  request.timeline = true;
  request.compare_sequential = true;

  JobPlan plan;
  Strategy strategy;
  if (spec.has_strategy()) {
    ASSIGN_OR_RETURN(JudgedPlan judged,
                     JudgeStrategy(request, FromProto(spec.strategy()), "given"));
    strategy = judged.plan.strategy;
    plan.best = ToProto(judged, cluster);
  } else {
    ASSIGN_OR_RETURN(PlanResponse response, SolvePlan(request, context));
    if (!response.best.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat("no plan: ", response.reason));
    }
    strategy = response.best->plan.strategy;
    plan.best = ToProto(*response.best, cluster);
    if (response.sequential.has_value()) {
      plan.sequential = ToProto(*response.sequential, cluster);
      plan.sequential->mutable_evaluation()->clear_timeline();
    }
  }
  if (!spec.evaluation_data_path().empty()) {
    const auto costs = MakeAnalyticCostModel(graph);
    ASSIGN_OR_RETURN(Program program, Lower(graph, strategy, *costs,
                                            {.optimizer = request.optimizer, .training = false}));
    plan.evaluation_program = ToProto(program);
  }
  return plan;
}

}  // namespace stagewright
