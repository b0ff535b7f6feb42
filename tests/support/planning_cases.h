// Graphs, clusters and strategies for tests of everything from the simulator to the planners:
// exact ones whose times follow from their arguments, and random ones.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/strategy/strategy.h"
#include "common/topology/cluster.h"

namespace stagewright::testing {

// A planning-only node: costs of one sample, exactly linear in the samples.
struct Work {
  Nanos forward = 0;
  Nanos backward = 0;
  Bytes activation_bytes = 0;
  Bytes parameter_bytes = 0;
  std::vector<int32_t> after;
};
// Nodes "n0", "n1", ...
Graph ProfiledGraph(const std::vector<Work>& nodes);
// `length` equal nodes in a row.
Graph ProfiledChain(int32_t length, Work each);

// `size` devices of one kind ("test", 1 TFLOP/s, 1 TB/s, no launch overhead), each with its own
// port of this rate.
Cluster FlatCluster(int32_t size, Bytes memory = 16 * kGiB, Nanos latency = 0,
                    double bytes_per_second = 1e9);

using Random = std::mt19937_64;
// Uniform in [low, high].
int64_t Draw(Random& random, int64_t low, int64_t high);

// A connected or disconnected DAG of planning-only nodes (zero costs among them).
Graph RandomProfile(Random& random, int32_t nodes);
// A DAG of linear, relu and add nodes over batched tensors, with a loss.
Graph RandomNetwork(Random& random, int32_t nodes);
// 1 to `most` devices of one or two kinds in one or more nodes that share uplinks.
Cluster RandomCluster(Random& random, int32_t most);
// Any strategy that the conditions allow: random cuts of a random topological order, replicas,
// micro-batches, kFkB and more samples in flight than needed; sequential or not.
Strategy RandomStrategy(Random& random, const Graph& graph, const OperatorGraph& operators,
                        const Cluster& cluster, int64_t mini_batch);

// One stage per group of nodes, stage i on devices[i], data edges, in-flight samples by
// AssignInFlight.
Strategy MakeStrategy(const Graph& graph, const std::vector<std::vector<int32_t>>& groups,
                      const std::vector<std::vector<int32_t>>& devices, int64_t mini_batch,
                      int64_t micro_batch, StrategyKind kind = StrategyKind::kGraph);

}  // namespace stagewright::testing
