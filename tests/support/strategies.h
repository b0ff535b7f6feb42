// Strategies: stages by hand, or random ones.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/strategy/strategy.h"
#include "common/topology/cluster.h"
#include "tests/support/random.h"

namespace stagewright::testing {

// One stage per group of nodes, stage i on devices[i], data edges, in-flight samples by
// AssignInFlight.
Strategy MakeStrategy(const Graph& graph, const std::vector<std::vector<int32_t>>& groups,
                      const std::vector<std::vector<int32_t>>& devices, int64_t mini_batch,
                      int64_t micro_batch, StrategyKind kind = StrategyKind::kGraph);

struct StageSpec {
  std::vector<int32_t> nodes;
  std::vector<int32_t> devices;
  int64_t micro_batch = 1;
  int32_t k = 1;
};
// With data edges (and the chain's if sequential) and AssignInFlight.
Strategy MakeStages(const Graph& graph, int64_t mini_batch, const std::vector<StageSpec>& specs,
                    StrategyKind kind = StrategyKind::kGraph);

// Any strategy that the conditions allow: random cuts of a random topological order, replicas,
// micro-batches, kFkB and more samples in flight than needed; sequential or not.
Strategy RandomStrategy(Rng& rng, const Graph& graph, const OperatorGraph& operators,
                        const Cluster& cluster, int64_t mini_batch);

}  // namespace stagewright::testing
