// Random DAGs and graphs.
#pragma once

#include <cstdint>
#include <string>

#include "common/graph/dag.h"
#include "common/graph/graph.h"
#include "tests/support/random.h"

namespace stagewright::testing {

// Each pair of a random order is an edge with probability `density`.
Dag RandomDag(Rng& rng, int32_t n, double density);

struct SeriesParallelCase {
  Dag dag;
  std::string tree;  // As ToString(Decompose(dag)) should print it.
};
// A random tree over n vertices with shuffled numbers; the DAG has its covers and some edges that
// they imply.
SeriesParallelCase RandomSeriesParallel(Rng& rng, int32_t n);

// A random executable graph: products, elementwise chains, fan-outs, concatenations, constants and
// tensors that cannot be cut. Ends in a loss.
Graph RandomGraph(Rng& rng, int32_t nodes);

// A connected or disconnected DAG of planning-only nodes (zero costs among them).
Graph RandomProfile(Rng& rng, int32_t nodes);
// A DAG of linear, relu and add nodes over batched tensors, with a loss.
Graph RandomNetwork(Rng& rng, int32_t nodes);

}  // namespace stagewright::testing
