// What a backward pass reads and writes beside its products, as LibTorch's automatic
// differentiation runs it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/cost/typed_sizes.h"
#include "common/graph/graph.h"

namespace stagewright {

// Kernels that memory bounds: how many, and the bytes that they read and write.
struct Moves {
  int launches = 0;
  double bytes = 0;

  void Add(double more, int times = 1) {
    launches += times;
    bytes += more;
  }
};

struct BackwardMoves {
  Moves input;   // Gradients of what the node reads.
  Moves weight;  // Gradients of its parameters.
};

// How many operands hand a gradient to each output of each node. O(size of the graph).
std::vector<std::vector<int32_t>> GradientsOfValues(const Graph& graph);

// What a cross-entropy writes for its softmax and reads again, in its forward pass.
Moves MovesOfForward(const Graph& graph, NodeId id, int64_t samples);

// What one node moves, whose outputs get so many gradients:
//  - gradients of a value that several nodes read are added up one after the other;
//  - a bias takes the sum over all rows of the gradient of the product's result;
//  - what is neither product nor gather reads the gradient of its result and what was kept, and
//    writes a gradient for each operand; norms read the same once more for their weights; an
//    operand that was broadcast takes a sum;
//  - additions, sums and concatenations hand gradients on; transpositions and reshapings too;
//  - slices write their gradient into zeros, and what takes a tensor apart puts one together.
// Nothing for nodes without a backward pass. O(operands).
BackwardMoves MovesOfBackward(const Graph& graph, NodeId id, const TypedSizes& sizes,
                              const std::vector<int32_t>& gradients, int64_t samples);

}  // namespace stagewright
