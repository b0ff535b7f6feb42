// Measurements of operators for later plans, from the steps of a job.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/cost/cost_model.h"
#include "common/cost/measured/operator_profile.h"
#include "common/graph/graph.h"
#include "common/topology/cluster.h"
#include "planner_service/drift/action_times.h"

namespace stagewright {

// What was timed on devices of `measured`, by what they are as profiles tell them apart: of an
// operator that ran on several, or several times in the graph, the mean. `costs`, which are for the
// graph and the cluster, say how the halves of a backward pass share its time. Bytes are not known.
// `job` and `day` as in MeasuredOperator. O(operators).
OperatorProfile ProfileOfSteps(const Graph& graph, const Cluster& cluster, const CostModel& costs,
                               const std::vector<TimedOperator>& operators,
                               const std::map<DeviceId, ProfiledDevice>& measured,
                               const std::string& job, const std::string& day);

}  // namespace stagewright
