// Operators cut in parallel parts: tensor parallelism as a rewrite of the graph.
//
// A linear layer is cut by the features that come out, an embedding by the entries of a row, or by
// the words if a linear layer reads the same table, a profiled node evenly. Whatever reads a matrix
// that is cut is cut like it. A layer that is several in one (joint_layers.h) is first cut into
// these. Parts go on through operators that work on each of them alone (carried.h): biases,
// activations, the heads of attention. A linear layer that is to be cut in as many parts and reads
// its features in these parts is cut by the features that go in, and its parts are added up; a
// cross-entropy of logits in parts is computed without joining them (vocabulary_loss.h). Before
// everything else parts are concatenated.
//
// Nodes, values and inputs keep their ids: what is new comes behind, and the id of a node that was
// cut is that of what joins its parts, or of its first part where nothing reads them joined. So the
// masks of dropouts stay as they were. Parameters are cut with their operators into slices that go
// by the whole tensor's name (ParameterSlice). Every value of the original graph that is still
// there is the same up to rounding, and so are gradients.
//
// A prediction that nothing but the split loss reads, and of which no accuracy can be told, is
// dropped: joining it would be work for nothing.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/graph/operator_split.h"

namespace stagewright {

// INVALID_ARGUMENT names the node and why it cannot be cut so: CutOf and CheckParts, a node given
// twice, or a parameter that other operators read, too. O(size of the graph + new nodes) for each
// node that is cut.
absl::StatusOr<Graph> SplitOperators(const Graph& graph, const std::vector<OperatorSplit>& splits);

// The graphs of a model for samples of several lengths, each cut alike.
absl::StatusOr<std::vector<Graph>> SplitOperators(const std::vector<Graph>& graphs,
                                                  const std::vector<OperatorSplit>& splits);

}  // namespace stagewright
