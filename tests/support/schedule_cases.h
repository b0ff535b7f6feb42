// Graphs, strategies and costs for tests of schedules: small ones whose programs a reader can
// check, and random ones.
#pragma once

#include <string>
#include <vector>

#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "common/strategy/strategy.h"
#include "common/topology/cluster.h"
#include "tests/support/test_graphs.h"

namespace stagewright::testing {

// The same bytes per sample for every node that has parameters; nothing for others.
class FixedCosts : public CostModel {
 public:
  FixedCosts(Bytes saved, Bytes workspace, const Graph& graph)
      : saved_(saved), workspace_(workspace), graph_(graph) {}
  OperatorTime Time(NodeId, const DeviceKind&, int64_t) const override { return {}; }
  Bytes SavedBytes(NodeId node, int64_t samples) const override {
    return graph_.Parameters(node).empty() ? 0 : saved_ * samples;
  }
  Bytes WorkspaceBytes(NodeId node, int64_t samples) const override {
    return graph_.Parameters(node).empty() ? 0 : workspace_ * samples;
  }
  std::string Description() const override { return "fixed"; }

 private:
  Bytes saved_, workspace_;
  const Graph& graph_;
};

// Layers of one float32 feature: node i is a layer with one parameter, layer i, over the nodes in
// `reads[i]` (the input if there is none). The last one gets the loss, one more node.
Graph LinearGraph(const std::vector<std::vector<int32_t>>& reads);
// `length` linear layers, nodes 0 to length - 1, and the loss, node `length`.
Graph ChainGraph(int32_t length);
// Two planning-only nodes, one after the other; of each, 1000 bytes for 8 samples leave and are
// saved.
Graph ProfiledGraph();

// A cluster of `size` devices "d0", "d1", ...
Cluster TestCluster(int32_t size);

struct StageSpec {
  std::vector<int32_t> nodes;
  std::vector<int32_t> devices;
  int64_t micro_batch = 1;
  int32_t k = 1;
};
// With data edges (and the chain's if sequential) and AssignInFlight.
Strategy MakeStages(const Graph& graph, int64_t mini_batch, const std::vector<StageSpec>& specs,
                    StrategyKind kind = StrategyKind::kGraph);

struct RandomCase {
  Graph graph;
  Strategy strategy;
  Cluster cluster;
  bool shared_devices = false;
};
// 1 to 6 stages of a random DAG (with joins, skips, constants, tensors that cannot be cut) with
// any micro-batches (often powers of two), 1 to 3 replicas, 1 to 32 samples, k from 1 to 3,
// sometimes shared devices, recomputation or a sequential pipeline.
RandomCase MakeRandomCase(Rng& rng);

// A random case with one micro-batch size, at most 8 micro-batches and k = 1.
RandomCase MakeUniformCase(Rng& rng);

// Explicit orders of a random execution of the strategy, some stages with split backward passes,
// put into it by SetOrders.
void DrawOrders(Rng& rng, const Graph& graph, Strategy& strategy);

}  // namespace stagewright::testing
