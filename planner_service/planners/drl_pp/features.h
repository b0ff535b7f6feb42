// What the graph encoder reads of every group of operators (DRL-PP section 3.1).
#pragma once

#include <vector>

#include "planner_service/planner/planner.h"
#include "planner_service/planners/drl_pp/grouping.h"

namespace stagewright {

// Types (one-hot, as shares of the group's nodes), in-degree, input bytes, out-degree, output
// bytes, parameter bytes, time. The last is not in the paper: simulated rewards come from a cost
// model that knows it.
inline constexpr int kNodeTypes = 7;
inline constexpr int kNodeFeatures = kNodeTypes + 6;

struct GroupFeatures {
  std::vector<float> features;   // [groups][kNodeFeatures]; all but types scaled to [0, 1].
  std::vector<float> adjacency;  // [groups][groups]: symmetric, with self-loops, rows sum to 1.
};

// O(nodes + groups^2).
GroupFeatures MakeGroupFeatures(const Problem& problem, const Grouping& grouping);

// Forward + backward time of every operator on the cluster's first kind of device, ns.
std::vector<double> OperatorTimes(const Problem& problem);

}  // namespace stagewright
