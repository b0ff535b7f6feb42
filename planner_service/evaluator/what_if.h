// The things that explanations change: clusters, costs, and strategies by one step.
#pragma once

#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/cost/cost_model.h"
#include "common/graph/operator_graph.h"
#include "common/strategy/strategy.h"
#include "common/topology/cluster.h"

namespace stagewright {

// Links with rates multiplied by `rate` and latencies by `latency`.
Cluster WithLinks(const Cluster& cluster, double rate, double latency);

// Memory multiplied by `factor`, at most 2^60 bytes a device.
Cluster WithMemory(const Cluster& cluster, double factor);

// Every device a second time: device n + d is like device d, with links like d's of its own. The
// two reach each other as d reaches the device it reaches fastest; where it is alone, over a link
// of 1 TB/s. RESOURCE_EXHAUSTED if that is more than Cluster::kMostDevices.
absl::StatusOr<Cluster> Doubled(const Cluster& cluster);

// Each stage on its devices and their second selves. INVALID_ARGUMENT if a stage's micro-batch has
// no sample for each of them.
absl::StatusOr<Strategy> OnDoubled(const Strategy& strategy, int32_t devices);

// The model with all times halved. `costs` outlives it.
std::unique_ptr<CostModel> TwiceAsFast(const CostModel& costs);

// What the strategy would be if memory were no object: nothing recomputed, in-flight samples by
// AssignInFlight where that is more.
Strategy Unconstrained(const Graph& graph, const Strategy& strategy);

// The operator `op` in stage `to` instead of its own, its edges and what is replicated following.
// INVALID_ARGUMENT if its stage would be empty or an edge would go backwards.
absl::StatusOr<Strategy> MoveOperator(const Graph& graph, const OperatorGraph& operators,
                                      const Strategy& strategy, OperatorId op, StageId to);

// All micro-batches half as large, in-flight samples as they are. INVALID_ARGUMENT if a replica
// would have no sample, or there are explicit orders.
absl::StatusOr<Strategy> HalfMicroBatches(const Strategy& strategy);

}  // namespace stagewright
