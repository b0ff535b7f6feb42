// Costs of memory alone, and random graphs with strategies and clusters: for tests of schedules.
#pragma once

#include <string>

#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "common/strategy/strategy.h"
#include "common/topology/cluster.h"
#include "tests/support/random.h"

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

}  // namespace stagewright::testing
