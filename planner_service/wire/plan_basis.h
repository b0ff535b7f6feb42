// What a plan was made from, so that whoever applies it later learns what is different by then.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/cost/measured/operator_profile.h"
#include "common/topology/cluster.h"
#include "stagewright/v1/planner_service.pb.h"

namespace stagewright {

// The cluster's, in their order.
std::vector<v1::BasisDevice> DevicesOf(const Cluster& cluster);

// All of the question but its cluster, which `devices` stand for, and without profiles. O(graph).
v1::PlanBasis BasisOf(const v1::PlanningProblem& problem, std::vector<v1::BasisDevice> devices);

// What is known of the kinds of the basis's devices. What was measured in jobs does not count: each
// job leaves some behind.
void SetProfiles(const OperatorProfile& known, v1::PlanBasis& basis);

// The ways between its devices, which the basis has. O(devices ^ 2).
void SetLinks(const Cluster& cluster, v1::PlanBasis& basis);

// ABORTED, with the reason PLAN_OUTDATED, says in what `now` is not as `then`: operators, devices,
// links and kinds by name. Devices that have come are no difference, nor are links whose latency
// and bandwidth are within a quarter of what they were: measured again they scatter as much.
absl::Status CheckBasis(const v1::PlanBasis& then, const v1::PlanBasis& now);

// The parts of it: what is different of devices, links and profiles, or of the rest, a text each;
// and what is said of all that is, OK for nothing.
std::vector<std::string> ChangesOfCluster(const v1::PlanBasis& then, const v1::PlanBasis& now);
std::vector<std::string> ChangesOfQuestion(const v1::PlanBasis& then, const v1::PlanBasis& now);
absl::Status Outdated(std::vector<std::string> changes);

}  // namespace stagewright
