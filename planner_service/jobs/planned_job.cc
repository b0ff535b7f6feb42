#include "planner_service/jobs/planned_job.h"

#include <utility>

#include "common/wire/graph_proto.h"
#include "common/wire/strategy_proto.h"
#include "common/wire/topology_proto.h"
#include "planner_service/wire/plan_proto.h"

namespace stagewright {

namespace {

// The plan may have been made for a cluster that is like this one.
v1::Plan PlanFor(const JudgedPlan& plan, const Cluster& cluster) {
  v1::Plan proto = ToProto(plan, cluster);
  proto.mutable_provenance()->set_cluster(cluster.name());
  return proto;
}

}  // namespace

PlannedJob ToProto(const JobPlan& plan, const Cluster& cluster) {
  const Cluster own = Subcluster(cluster, plan.devices);
  PlannedJob planned;
  planned.devices = plan.devices;
  planned.cluster = ToProto(own);
  if (plan.best.split_graphs != nullptr) {
    v1::Graph graph = ToProto(plan.best.split_graphs->graph);
    for (const Graph& length : plan.best.split_graphs->lengths)
      *graph.add_lengths() = ToProto(length);
    planned.graph = Sealed<v1::Graph>(std::move(graph));
  }
  v1::Plan best = PlanFor(plan.best, own);
  planned.timeline.Swap(best.mutable_evaluation()->mutable_timeline());
  planned.step_time = Nanos(best.evaluation().iteration_ns());
  for (const v1::DeviceReport& device : best.evaluation().devices())
    planned.memory.push_back({device.name(), device.device(), Bytes(device.peak_memory_bytes())});
  planned.best = Sealed<v1::Plan>(std::move(best));
  if (plan.sequential.has_value()) {
    v1::Plan sequential = PlanFor(*plan.sequential, cluster);
    sequential.mutable_evaluation()->clear_timeline();
    planned.sequential = Sealed<v1::Plan>(std::move(sequential));
  }
  for (const Program& program : plan.evaluations) planned.evaluations.push_back(ToProto(program));
  planned.operators = plan.operators;
  planned.warnings = plan.warnings;
  return planned;
}

std::vector<std::string> NamesOf(const std::vector<DeviceId>& devices,
                                 const std::vector<std::string>& names) {
  std::vector<std::string> named;
  for (const DeviceId device : devices) named.push_back(names[device.index()]);
  return named;
}

}  // namespace stagewright
