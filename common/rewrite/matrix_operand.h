// Operators that are a matrix of parameters applied to something: linear layers and embeddings.
#pragma once

#include <optional>
#include <vector>

#include "common/graph/graph.h"

namespace stagewright {

struct MatrixOperand {
  size_t input = 0;   // The argument that the matrix is applied to.
  size_t matrix = 1;  // The argument that it is.
  ParameterId weight;
  int32_t out_dim = 0;  // The weight's dimension of the features that come out.
  bool embedding = false;
  std::optional<size_t> bias;        // The argument that is added, if there is one.
  std::optional<ParameterId> added;  // A vector of the features that come out.
};

// linear(x, W, b), mm(x, W), matmul(x, W), addmm(b, x, W) and embedding(W, i), where W and b are
// parameters, W has two dimensions and the last dimension of the one result is that of the features
// that come out, along which no samples lie. O(1).
std::optional<MatrixOperand> MatrixOf(const Graph& graph, NodeId node);

// The nodes whose matrix the parameter is, ascending: several if it is tied. O(size of the graph).
std::vector<NodeId> NodesOfMatrix(const Graph& graph, ParameterId weight);

}  // namespace stagewright
