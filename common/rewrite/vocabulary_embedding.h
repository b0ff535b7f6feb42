// The embedding of words whose table is cut by the words, as the head that reads the same table is.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/rewrite/graph_edit.h"

namespace stagewright {

// Adds a node for each part of the table, which gives the rows of its own words and 0 for others:
// their sum is the embedding. `slices` are the parts of the table, equal ones. INVALID_ARGUMENT,
// naming the node, if gradients are scaled by how often a word is there, which no part knows.
// REQUIRES: the node is an embedding (MatrixOf).
absl::StatusOr<std::vector<NodeId>> AddEmbeddingsOfWords(const Graph& graph, NodeId node,
                                                         const std::vector<ParameterId>& slices,
                                                         GraphEdit& edit);

}  // namespace stagewright
