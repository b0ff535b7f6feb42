#include "planner_service/wire/plan_proto.h"

#include <memory>
#include <utility>

#include "common/wire/graph_proto.h"
#include "common/wire/strategy_proto.h"
#include "common/wire/topology_proto.h"

namespace stagewright {
namespace {

// The wire's values are ours, one higher.
static_assert(static_cast<int>(Termination::kOptimal) + 1 == v1::TERMINATION_OPTIMAL);
static_assert(static_cast<int>(Termination::kFeasible) + 1 == v1::TERMINATION_FEASIBLE);
static_assert(static_cast<int>(Termination::kInfeasible) + 1 == v1::TERMINATION_INFEASIBLE);
static_assert(static_cast<int>(Termination::kLimit) + 1 == v1::TERMINATION_LIMIT);

v1::Termination ToProto(Termination termination) {
  return static_cast<v1::Termination>(static_cast<int>(termination) + 1);
}

absl::StatusOr<Cluster> ClusterOf(const v1::PlanningProblem& proto) {
  switch (proto.cluster_source_case()) {
    case v1::PlanningProblem::kCluster:
      return FromProto(proto.cluster());
    case v1::PlanningProblem::kClusterPreset:
      return ClusterPreset(proto.cluster_preset());
    case v1::PlanningProblem::CLUSTER_SOURCE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("problem: neither cluster nor cluster_preset is set");
}

v1::Evaluation ToProto(const Evaluation& evaluation, const Cluster& cluster) {
  v1::Evaluation proto;
  proto.set_iteration_ns(evaluation.iteration_time);
  proto.set_samples_per_second(evaluation.samples_per_second);
  proto.set_depth(evaluation.depth);
  proto.set_bubble_ratio(evaluation.bubble_ratio);
  for (const StageReport& stage : evaluation.stages) {
    v1::StageReport* out = proto.add_stages();
    out->set_compute_ns(stage.compute_per_micro_batch);
    out->set_seconds_per_sample(stage.seconds_per_sample);
    out->set_peak_memory_bytes(stage.peak_memory);
    out->set_in_flight(stage.in_flight);
  }
  for (const DeviceUse& use : evaluation.devices) {
    v1::DeviceReport* out = proto.add_devices();
    out->set_device(use.device.value());
    out->set_name(cluster.device(use.device).name);
    out->set_busy_ns(use.busy);
    out->set_peak_memory_bytes(use.peak_memory);
    out->set_memory_budget_bytes(cluster.device(use.device).memory);
  }
  for (const TraceEvent& event : evaluation.simulation.timeline)
    *proto.add_timeline() = ToProto(event);
  return proto;
}

}  // namespace

Optimizer FromProto(v1::Optimizer optimizer) {
  switch (optimizer) {
    case v1::OPTIMIZER_SGD:
      return Optimizer::kSgd;
    case v1::OPTIMIZER_SGD_MOMENTUM:
      return Optimizer::kSgdMomentum;
    default:
      return Optimizer::kAdam;
  }
}

v1::Optimizer ToProto(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kSgd:
      return v1::OPTIMIZER_SGD;
    case Optimizer::kSgdMomentum:
      return v1::OPTIMIZER_SGD_MOMENTUM;
    case Optimizer::kAdam:
      return v1::OPTIMIZER_ADAM;
  }
  return v1::OPTIMIZER_UNSPECIFIED;
}

PlanOptions FromProto(const v1::PlanOptions& proto) {
  PlanOptions options;
  options.micro_batch = proto.micro_batch();
  options.max_stages = proto.max_stages();
  options.num_stages = proto.num_stages();
  options.allow_replicas = !proto.forbid_replicas();
  options.per_stage_micro_batch = proto.per_stage_micro_batch();
  options.max_k = proto.max_k() == 0 ? 1 : proto.max_k();
  return options;
}

absl::StatusOr<OwnedPlanRequest> FromProto(const v1::PlanningProblem& proto) {
  OwnedPlanRequest owned;
  if (!proto.has_graph()) return absl::InvalidArgumentError("problem.graph is not set");
  auto graph = FromProto(proto.graph());
  if (!graph.ok()) return Annotate(graph.status(), "problem.graph");
  auto cluster = ClusterOf(proto);
  if (!cluster.ok()) return Annotate(cluster.status(), "problem.cluster");
  owned.graph = std::make_unique<Graph>(*std::move(graph));
  owned.cluster = std::make_unique<Cluster>(*std::move(cluster));
  owned.request.graph = owned.graph.get();
  owned.request.cluster = owned.cluster.get();
  owned.request.mini_batch = proto.mini_batch();
  owned.request.optimizer = FromProto(proto.optimizer());
  return owned;
}

absl::StatusOr<OwnedPlanRequest> FromProto(const v1::PlanRequest& proto) {
  ASSIGN_OR_RETURN(OwnedPlanRequest owned, FromProto(proto.problem()));
  if (!proto.planner().empty()) owned.request.planner = proto.planner();
  owned.request.options = FromProto(proto.options());
  owned.request.timeline = proto.timeline();
  owned.request.compare_sequential = proto.compare_sequential();
  return owned;
}

v1::Plan ToProto(const JudgedPlan& plan, const Cluster& cluster) {
  v1::Plan proto;
  *proto.mutable_strategy() = ToProto(plan.plan.strategy);
  *proto.mutable_program() = ToProto(plan.plan.program);
  const Provenance& provenance = plan.plan.provenance;
  proto.mutable_provenance()->set_planner(provenance.planner);
  proto.mutable_provenance()->set_version(provenance.version);
  proto.mutable_provenance()->set_cost_model(provenance.cost_model);
  proto.mutable_provenance()->set_options(provenance.options);
  proto.mutable_provenance()->set_cluster(provenance.cluster);
  proto.mutable_provenance()->set_graph_fingerprint(provenance.graph_fingerprint);
  proto.set_fingerprint(plan.plan.fingerprint);
  *proto.mutable_evaluation() = ToProto(plan.evaluation, cluster);
  return proto;
}

v1::PlanResponse ToProto(const PlanResponse& response, const Cluster& cluster) {
  v1::PlanResponse proto;
  proto.set_termination(ToProto(response.termination));
  proto.set_reason(response.reason);
  if (response.best.has_value()) *proto.mutable_best() = ToProto(*response.best, cluster);
  if (response.sequential.has_value())
    *proto.mutable_sequential() = ToProto(*response.sequential, cluster);
  proto.set_lower_bound_ns(response.lower_bound);
  proto.set_search_seconds(response.search_seconds);
  proto.set_states(response.states);
  proto.set_candidates(response.candidates);
  proto.set_operators(response.operators);
  for (const std::string& warning : response.warnings) proto.add_warnings(warning);
  return proto;
}

}  // namespace stagewright
