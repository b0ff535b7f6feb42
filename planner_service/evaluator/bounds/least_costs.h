// What the nodes of a graph cost at least, whatever the strategy: the question that all bounds ask.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "common/cost/collectives.h"
#include "common/cost/cost_model.h"
#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/topology/cluster.h"
#include "common/training/autocast.h"

namespace stagewright {

// What a share of some number of samples costs, ns: what its samples wait for, and what each of
// them occupies a device for.
struct ShareCost {
  double passes = 0;      // Forward pass and input half of one action.
  double per_sample = 0;  // Forward and whole backward pass over the samples.
  double backward = 0;    // The backward pass of these.
  // The forward pass of one action of any replica of the same stage, on any kind: shares of a
  // stage differ by one sample at most.
  double forward = 0;
};

// The least a node can cost; ns, each minimum on its own. All 0 for replicated constants.
struct NodeCost {
  double forward = 0;  // Forward pass of one action, on any kind.
  double input = 0;    // Input half of its backward pass.
  double weight = 0;
  double update = 0;
  HeldBytes bytes;
  // By kind; infinite or empty where the node cannot run.
  std::vector<double> per_sample;       // Forward + backward, a sample.
  std::vector<double> to_predecessors;  // Forward + input half, a sample.
  // Over S, less what a mixture of two others has none of whose costs larger; passes ascending.
  std::vector<std::vector<ShareCost>> shares;
};

// A problem with what the bounds ask of it; immutable. References outlive it.
struct BoundProblem {
  const Graph& graph;
  const OperatorGraph& operators;
  const Cluster& cluster;
  MessageTypes types;
  int64_t mini_batch = 1;
  Optimizer optimizer = Optimizer::kSgd;
  OptimizerSharding sharding = OptimizerSharding::kNone;
  FastestExchange fastest;       // Between any two devices.
  std::vector<int32_t> devices;  // By kind: how many.
  // By node.
  std::vector<NodeCost> costs;
  std::vector<double> head;  // ns from the start of the step to the node's first forward pass.
  std::vector<double> tail;  // ns from the end of its last backward pass to the end of the step.

  bool owned(int32_t v) const { return operators.owner(NodeId(v)).valid(); }
  // From the start of a node's part of a backward pass to the end of the step.
  double WayBack(int32_t v) const {
    return costs[v].input + std::max(costs[v].weight + costs[v].update, tail[v]);
  }
};

// O(nodes * |S| * (kinds + log |S|) + edges + devices^2), S being that of lower_bound.h.
BoundProblem MakeBoundProblem(const Graph& graph, const OperatorGraph& operators,
                              const Cluster& cluster, const CostModel& costs, int64_t mini_batch,
                              Optimizer optimizer,
                              OptimizerSharding sharding = OptimizerSharding::kNone);

// Trained bytes of the parameters that a node is the first to use, by node.
std::vector<HeldBytes> FirstUses(const BoundProblem& problem);

}  // namespace stagewright
