// Which operators can be cut in parallel parts, and along what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"

namespace stagewright {

struct OperatorCut {
  std::string dimension;  // "out_features": what the parts share out evenly, for people.
  int64_t size = 0;       // How much there is of it; 0: not known, any number of parts is taken.
  // The graph says that the operator can be cut. Otherwise it is a node of a profile that is taken
  // for a linear layer.
  bool known = true;
};

// How the node can be cut:
//  - aten.linear, by the features that come out (by those that go in, where these are in parts);
//    the same for mm, matmul and addmm with a parameter as the matrix;
//  - aten.embedding, by the entries of a row; by the words if a linear layer reads the same table;
//  - a node of a profile that has parameters, by what its description says: Linear, Conv2d and
//    Embedding as PyTorch prints them. A name alone ("top0") says nothing.
// INVALID_ARGUMENT names the node and says why it cannot be cut; other layers that a description
// names ("LSTM(...)") are refused. O(1), for embeddings O(size of the graph).
absl::StatusOr<OperatorCut> CutOf(const Graph& graph, NodeId node);

// INVALID_ARGUMENT names node, dimension, size and the numbers near by that divide it, unless
// `parts` is 2 or more and divides. O(size / parts).
absl::Status CheckParts(const Graph& graph, NodeId node, const OperatorCut& cut, int32_t parts);

// The node that people call `name`: its own, or that of the one node with that module that can be
// cut. INVALID_ARGUMENT if there is none, or several.
absl::StatusOr<NodeId> NodeToCut(const Graph& graph, const std::string& name);

}  // namespace stagewright
