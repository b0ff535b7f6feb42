// A job's plan in the forms that it is shown, sent and kept in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/topology/cluster.h"
#include "planner_service/drift/action_times.h"
#include "planner_service/jobs/job.h"
#include "planner_service/jobs/job_plan.h"
#include "stagewright/v1/planner_service.pb.h"
#include "stagewright/v1/program.pb.h"
#include "stagewright/v1/topology.pb.h"

namespace stagewright {

struct PlannedJob {
  std::vector<DeviceId> devices;  // JobPlan::devices.
  v1::Cluster cluster;            // These alone.
  // The graph that the plan names the operators of that are cut, after that; null: it names none.
  Sealed<v1::Graph> graph;
  Sealed<v1::Plan> best, sequential;  // Without timelines; the latter may be null.
  google::protobuf::RepeatedPtrField<v1::TraceEvent> timeline;  // The best plan's.
  // Evaluation programs, of the graph first, then of each of its lengths; none if nothing is
  // evaluated.
  std::vector<v1::Program> evaluations;
  std::vector<TimedOperator> operators;  // What the best plan reckons with.
  std::vector<std::string> warnings;
  Nanos step_time = 0;               // As predicted.
  std::vector<DeviceMemory> memory;  // The same, of the devices that have work.
};

// For the cluster that it was made for, or one that is like it but for names.
PlannedJob ToProto(const JobPlan& plan, const Cluster& cluster);

// What the devices of the plan are called where those that it was sought for are called so.
std::vector<std::string> NamesOf(const std::vector<DeviceId>& devices,
                                 const std::vector<std::string>& names);

}  // namespace stagewright
