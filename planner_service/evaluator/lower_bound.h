// A bound from below on the iteration time of every strategy: how far from the best an answer can
// be.
#pragma once

#include <cstdint>

#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/topology/cluster.h"

namespace stagewright {

struct BoundOptions {
  // Plain SGD has the least state to hold and to update, so its bound holds for every optimizer.
  Optimizer optimizer = Optimizer::kSgd;
  // For asynchronous strategies: the time per mini-batch of a pipeline that is never flushed.
  bool asynchronous = false;
  // The bound is of strategies whose replicas share out the optimizer's state, however many they
  // are: the state and its updates cost nothing then, and sums at least as much as once a step.
  OptimizerSharding sharding = OptimizerSharding::kNone;
};

// The bounds whose largest is the answer; docs/lower-bound.md proves each under its name. 0 where
// one does not hold for asynchronous strategies, or is not above the others.
struct BoundParts {
  Nanos work = 0;  // A device does one thing at a time.
  Nanos path = 0;  // One sample, there and back.
  // Both at once: the same shares of samples make work and path, and the way to the loss, before
  // which no backward pass begins.
  Nanos joint = 0;
  Nanos node = 0;     // An operator's replicas sum their gradients.
  Nanos packing = 0;  // Operators whose sums are dear are shared out whole.
  Nanos join = 0;     // What an operator reads comes in through ports.
  Nanos Largest() const;
};

// No strategy that passes Evaluate for this graph, cluster, cost model and mini-batch is faster.
// Scope: all synchronous strategies - any convex stages, any devices for them (several stages on a
// device, replicas, mixed kinds), any micro-batch sizes, any compute order (loops, kFkB, explicit
// orders, backward passes whole or split in two) and recomputation, which only adds work. With
// `asynchronous` the same for pipelines without a flush. Replicated constant nodes are free here.
//
// In nanoseconds, rounded down. O(nodes * (|S| * kinds + n) + edges + n^2), where n counts devices
// and S is the set of numbers of samples that an action can have, and for Join and Joint a few
// hundred times O(nodes + edges).
BoundParts BoundPartsOf(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
                        const CostModel& costs, int64_t mini_batch,
                        const BoundOptions& options = {});

// The largest of them.
Nanos LowerBound(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
                 const CostModel& costs, int64_t mini_batch, const BoundOptions& options = {});

}  // namespace stagewright
