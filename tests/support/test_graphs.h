// Graphs for tests: random DAGs, random series-parallel orders, and a builder for executable
// graphs.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/graph/dag.h"
#include "common/graph/graph.h"

namespace stagewright::testing {

using Rng = std::mt19937_64;

// Uniform in [low, high].
int64_t Uniform(Rng& rng, int64_t low, int64_t high);

// Each pair of a random order is an edge with probability `density`.
Dag RandomDag(Rng& rng, int32_t n, double density);

struct SeriesParallelCase {
  Dag dag;
  std::string tree;  // As ToString(Decompose(dag)) should print it.
};
// A random tree over n vertices with shuffled numbers; the DAG has its covers and some edges that
// they imply.
SeriesParallelCase RandomSeriesParallel(Rng& rng, int32_t n);

// Builds graphs of ATen nodes over a batch of samples. Shapes are per sample: the batch dimension
// is put in front.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name) { data.name = std::move(name); }

  Argument Feature(const std::string& name, std::vector<int64_t> shape,
                   DType dtype = DType::kFloat32);
  Argument Weight(const std::string& name, std::vector<int64_t> shape, bool trainable = true);
  // One output of `shape` per sample, of type float32.
  Argument Add(const std::string& target, std::vector<Argument> args, std::vector<int64_t> shape);
  // The same with any outputs; the answer is output 0.
  Argument AddWith(const std::string& target, std::vector<Argument> args,
                   std::vector<TensorMeta> outputs);
  // "aten.linear.default" with a new weight and bias.
  Argument Linear(Argument x, int64_t in, int64_t out);
  // Mean squared error against the input "target"; makes it the loss.
  void Loss(Argument prediction, std::vector<int64_t> shape);

  Graph Build() const;

  GraphData data;
};

// A constant argument.
Argument Number(int64_t value);
TensorMeta Batched(std::vector<int64_t> shape, DType dtype = DType::kFloat32);
TensorMeta Fixed(std::vector<int64_t> shape, DType dtype = DType::kFloat32);
NodeId NodeOf(const Argument& value);

// A random executable graph: products, elementwise chains, fan-outs, concatenations, constants and
// tensors that cannot be cut. Ends in a loss.
Graph RandomGraph(Rng& rng, int32_t nodes);

}  // namespace stagewright::testing
