// How long actions take by a cost model.
#pragma once

#include <memory>

#include "common/cost/cost_model.h"
#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "common/topology/cluster.h"
#include "planner_service/simulator/durations.h"

namespace stagewright {

// Durations from a cost model and a cluster; computed once per (stage, device kind, samples).
// References must outlive it.
//
// A compute action takes the sum of its nodes' times (own and replicated) and the fixed costs of
// its kind of device: of the pass, and of an even share of the messages that the device exchanges
// for the stage. An optimizer step reads and writes what its stage holds for the trainable
// parameters that it updates once, in proportion to their gradients. A backward pass comes to a
// mark when it has the times of the nodes before it left, of each the whole backward time or, in a
// weight half, that of its weights. Links are its own while a collective runs: AllReduceTime, or
// ShareExchangeTime for a reduce-scatter and an all-gather. Of what replicas share out, a step goes
// over the largest share.
// Splitting and joining tensors between stages of different micro-batches or replicas happens on
// the way into and out of messages and takes no time of its own.
std::unique_ptr<Durations> MakeModelDurations(const Graph& graph, const Program& program,
                                              const Cluster& cluster, const CostModel& costs,
                                              Optimizer optimizer);

}  // namespace stagewright
