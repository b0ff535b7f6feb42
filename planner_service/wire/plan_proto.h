// The front door's requests and answers <-> stagewright.v1. No gRPC here: `stagewright plan
// --local` prints the same messages that the service returns.
#pragma once

#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "common/topology/cluster.h"
#include "planner_service/front_door/front_door.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright {

// A planning question with what it refers to; `request` points into the other members.
struct OwnedPlanRequest {
  std::unique_ptr<Graph> graph;
  std::unique_ptr<std::vector<Graph>> lengths;
  std::unique_ptr<Cluster> cluster;
  PlanRequest request;
};

// INVALID_ARGUMENT names the field.
absl::StatusOr<OwnedPlanRequest> FromProto(const v1::PlanRequest& proto);
absl::StatusOr<OwnedPlanRequest> FromProto(const v1::PlanningProblem& proto);

PlanOptions FromProto(const v1::PlanOptions& proto);

v1::Explanation ToProto(const Explanation& explanation);
Explanation FromProto(const v1::Explanation& proto);

v1::Plan ToProto(const JudgedPlan& plan, const Cluster& cluster);
v1::PlanResponse ToProto(const PlanResponse& response, const Cluster& cluster);

}  // namespace stagewright
