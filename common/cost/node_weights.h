// Operators weighed by their times.
#pragma once

#include <cstdint>
#include <vector>

#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "common/topology/cluster.h"

namespace stagewright {

// A weight per node for Coarsen(): analytic forward + backward time on `kind` at `samples`.
std::vector<double> NodeWeights(const Graph& graph, const CostModel& costs, const DeviceKind& kind,
                                int64_t samples);

// All of them together, ns.
double TotalTime(const Graph& graph, const CostModel& costs, const DeviceKind& kind,
                 int64_t samples);

}  // namespace stagewright
