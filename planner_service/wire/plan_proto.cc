#include "planner_service/wire/plan_proto.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/one_line.h"
#include "common/cost/parameters.h"
#include "common/topology/presets.h"
#include "common/topology/uniform.h"
#include "common/wire/graph_proto.h"
#include "common/wire/strategy_proto.h"
#include "common/wire/topology_proto.h"
#include "common/wire/training_proto.h"
#include "planner_service/wire/manual_devices.h"

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

static_assert(static_cast<int>(Binding::kCompute) + 1 == v1::BINDING_COMPUTE);
static_assert(static_cast<int>(Binding::kLinks) + 1 == v1::BINDING_LINKS);
static_assert(static_cast<int>(Binding::kMemory) + 1 == v1::BINDING_MEMORY);
static_assert(static_cast<int>(Binding::kBubble) + 1 == v1::BINDING_BUBBLE);

v1::WhatIf ToProto(const WhatIf& what) {
  v1::WhatIf proto;
  proto.set_change(what.change);
  if (what.step_time) proto.set_step_ns(what.step_time->count());
  proto.set_reason(what.reason);
  return proto;
}

WhatIf WhatIfOf(const v1::WhatIf& proto) {
  WhatIf what{proto.change(), std::nullopt, proto.reason()};
  if (proto.has_step_ns()) what.step_time = Nanos(proto.step_ns());
  return what;
}

RecomputePolicy PolicyOf(v1::RecomputePolicy policy) {
  switch (policy) {
    case v1::RECOMPUTE_POLICY_NEVER:
      return RecomputePolicy::kNever;
    case v1::RECOMPUTE_POLICY_ALWAYS:
      return RecomputePolicy::kAlways;
    default:
      return RecomputePolicy::kAllowed;
  }
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

// Without measured times, every plan for devices that add none to them would be as good.
absl::Status CheckRates(const Graph& graph, const Cluster& cluster) {
  const auto nodes = graph.nodes();
  if (std::any_of(nodes.begin(), nodes.end(), [](const Node& node) { return node.cost; }))
    return absl::OkStatus();
  for (const DeviceKind& kind : cluster.kinds()) {
    if (!OnlyForMeasuredTimes(kind)) continue;
    return OneLine(absl::InvalidArgumentError(
        absl::StrCat("device kind \"", kind.name,
                     "\" is for graphs with measured times only, and \"", graph.name(),
                     "\" has none: use a preset with rates (summit:N, dgx-a100:N, dgx-h100:N, "
                     "dgx-h200:N, cpu:N) or a "
                     "cluster file with those of the devices")));
  }
  return absl::OkStatus();
}

// The plan by hand on the cluster.
std::string ManualOn(const Cluster& cluster, const v1::PlanOptions& options) {
  if (options.found_for().empty()) return options.manual();
  std::set<std::string> there;
  for (const Device& device : cluster.devices()) there.insert(device.name);
  if (!StandForOthers(ManualDevicesOf(options.manual()).named, there)) return options.manual();
  return ByNumber(options.manual(), {options.found_for().begin(), options.found_for().end()});
}

v1::Evaluation ToProto(const Evaluation& evaluation, const Cluster& cluster) {
  v1::Evaluation proto;
  proto.set_iteration_ns(evaluation.iteration_time.count());
  proto.set_samples_per_second(evaluation.samples_per_second);
  proto.set_depth(evaluation.depth);
  proto.set_bubble_ratio(evaluation.bubble_ratio);
  for (const StageReport& stage : evaluation.stages) {
    v1::StageReport* out = proto.add_stages();
    out->set_compute_ns(stage.compute_per_micro_batch.count());
    out->set_seconds_per_sample(stage.seconds_per_sample);
    out->set_peak_memory_bytes(stage.peak_memory.count());
    out->set_in_flight(stage.in_flight);
  }
  for (const DeviceUse& use : evaluation.devices) {
    v1::DeviceReport* out = proto.add_devices();
    out->set_device(use.device.value());
    out->set_name(cluster.device(use.device).name);
    out->set_busy_ns(use.busy.count());
    out->set_peak_memory_bytes(use.peak_memory.count());
    out->set_memory_budget_bytes(cluster.device(use.device).memory.count());
  }
  for (const TraceEvent& event : evaluation.simulation.timeline)
    *proto.add_timeline() = ToProto(event);
  return proto;
}

}  // namespace

PlanOptions FromProto(const v1::PlanOptions& proto) {
  PlanOptions options;
  options.micro_batch = proto.micro_batch();
  options.max_stages = proto.max_stages();
  options.num_stages = proto.num_stages();
  options.allow_replicas = !proto.forbid_replicas();
  options.per_stage_micro_batch = proto.per_stage_micro_batch();
  options.max_k = proto.max_k() == 0 ? 1 : proto.max_k();
  options.recompute = PolicyOf(proto.recompute());
  options.max_loops = proto.max_loops();
  options.split_backward = !proto.forbid_split_backward();
  options.sequential = proto.sequential();
  options.asynchronous = proto.asynchronous();
  options.vertical_sync = proto.vertical_sync();
  options.seed = proto.seed() == 0 ? 1 : proto.seed();
  options.effort = proto.effort() == 0 ? 1 : proto.effort();
  options.batch_statistics = FromProto(proto.batch_statistics());
  options.bucket_bytes = Bytes(proto.bucket_bytes());
  options.optimizer_sharding = FromProto(proto.optimizer_sharding());
  if (proto.optimizer_sharding() == v1::OPTIMIZER_SHARDING_AUTO)
    options.optimizer_sharding = std::nullopt;
  options.try_splits = proto.split_policy() != v1::SPLIT_POLICY_OFF;
  for (const v1::OperatorSplit& split : proto.splits()) options.splits.push_back(FromProto(split));
  options.manual = proto.manual();
  return options;
}

absl::StatusOr<OwnedPlanRequest> FromProto(const v1::PlanningProblem& proto) {
  OwnedPlanRequest owned;
  if (!proto.has_graph()) return absl::InvalidArgumentError("problem.graph is not set");
  auto graph = FromProto(proto.graph());
  if (!graph.ok()) return Annotate(graph.status(), "problem.graph");
  auto cluster = ClusterOf(proto);
  if (!cluster.ok()) return Annotate(cluster.status(), "problem.cluster");
  RETURN_IF_ERROR(Annotate(CheckRates(*graph, *cluster), "problem.cluster"));
  auto lengths = LengthsFromProto(proto.graph(), *graph);
  if (!lengths.ok()) return Annotate(lengths.status(), "problem.graph");
  owned.graph = std::make_unique<Graph>(*std::move(graph));
  owned.lengths = std::make_unique<std::vector<Graph>>(*std::move(lengths));
  owned.cluster = std::make_unique<Cluster>(*std::move(cluster));
  owned.request.graph = owned.graph.get();
  owned.request.lengths = owned.lengths.get();
  owned.request.cluster = owned.cluster.get();
  owned.request.mini_batch = proto.mini_batch();
  owned.request.optimizer = FromProto(proto.optimizer());
  ASSIGN_OR_RETURN(owned.request.precision, FromProto(proto.precision(), "problem."));
  return owned;
}

absl::StatusOr<OwnedPlanRequest> FromProto(const v1::PlanRequest& proto) {
  ASSIGN_OR_RETURN(OwnedPlanRequest owned, FromProto(proto.problem()));
  if (!proto.planner().empty()) owned.request.planner = proto.planner();
  owned.request.options = FromProto(proto.options());
  owned.request.options.manual = ManualOn(*owned.cluster, proto.options());
  owned.request.timeline = proto.timeline();
  owned.request.compare_sequential = proto.compare_sequential();
  owned.request.explain = proto.explain();
  return owned;
}

v1::Explanation ToProto(const Explanation& explanation) {
  v1::Explanation proto;
  proto.set_step_ns(explanation.step_time.count());
  proto.set_compute_ns(explanation.compute.count());
  proto.set_links_ns(explanation.links.count());
  proto.set_memory_ns(explanation.memory.count());
  proto.set_bubble_ns(explanation.bubble.count());
  proto.set_binding(static_cast<v1::Binding>(static_cast<int>(explanation.binding) + 1));
  proto.set_bottleneck_stage(explanation.bottleneck.value());
  proto.set_bottleneck_device(explanation.bottleneck_device);
  for (const CutReport& cut : explanation.cuts) {
    v1::CutReport* out = proto.add_cuts();
    out->set_from(cut.from.value());
    out->set_to(cut.to.value());
    *out->mutable_smaller() = ToProto(cut.smaller);
    *out->mutable_larger() = ToProto(cut.larger);
  }
  proto.set_cuts_left_out(explanation.cuts_left_out);
  for (const WhatIf& lever : explanation.levers) *proto.add_levers() = ToProto(lever);
  return proto;
}

Explanation FromProto(const v1::Explanation& proto) {
  Explanation explanation;
  explanation.step_time = Nanos(proto.step_ns());
  explanation.compute = Nanos(proto.compute_ns());
  explanation.links = Nanos(proto.links_ns());
  explanation.memory = Nanos(proto.memory_ns());
  explanation.bubble = Nanos(proto.bubble_ns());
  if (proto.binding() > v1::BINDING_UNSPECIFIED && proto.binding() <= v1::BINDING_BUBBLE)
    explanation.binding = static_cast<Binding>(static_cast<int>(proto.binding()) - 1);
  explanation.bottleneck = StageId(proto.bottleneck_stage());
  explanation.bottleneck_device = proto.bottleneck_device();
  for (const v1::CutReport& cut : proto.cuts()) {
    explanation.cuts.push_back(
        {StageId(cut.from()), StageId(cut.to()), WhatIfOf(cut.smaller()), WhatIfOf(cut.larger())});
  }
  explanation.cuts_left_out = proto.cuts_left_out();
  for (const v1::WhatIf& lever : proto.levers()) explanation.levers.push_back(WhatIfOf(lever));
  return explanation;
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
  proto.mutable_provenance()->set_precision(ToProto(provenance.precision));
  proto.set_fingerprint(plan.plan.fingerprint);
  *proto.mutable_evaluation() = ToProto(plan.evaluation, cluster);
  for (const LengthPlan& length : plan.lengths) {
    v1::LengthPlan* out = proto.add_lengths();
    out->set_samples(length.samples);
    *out->mutable_program() = ToProto(length.evaluation.program);
    *out->mutable_evaluation() = ToProto(length.evaluation, cluster);
  }
  return proto;
}

v1::PlanResponse ToProto(const PlanResponse& response, const Cluster& cluster) {
  v1::PlanResponse proto;
  proto.set_termination(ToProto(response.termination));
  proto.set_reason(response.reason);
  if (response.best.has_value()) *proto.mutable_best() = ToProto(*response.best, cluster);
  if (response.sequential.has_value())
    *proto.mutable_sequential() = ToProto(*response.sequential, cluster);
  if (response.one_device.has_value()) proto.set_one_device_ns(response.one_device->count());
  proto.set_lower_bound_ns(response.lower_bound.count());
  proto.set_search_seconds(response.search_seconds);
  proto.set_states(response.states);
  proto.set_candidates(response.candidates);
  proto.set_operators(response.operators);
  for (const std::string& warning : response.warnings) proto.add_warnings(warning);
  if (response.explanation) *proto.mutable_explanation() = ToProto(*response.explanation);
  return proto;
}

}  // namespace stagewright
