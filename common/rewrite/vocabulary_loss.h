// The cross-entropy of logits that come in parts of the vocabulary, so that no node holds them all.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/rewrite/graph_edit.h"

namespace stagewright {

// The node is aten.cross_entropy_loss of class indices, over dimension 1 of its first argument,
// without class weights or label smoothing.
bool IsVocabularyLoss(const Graph& graph, NodeId node);

// Puts in the place of such a node what computes the same from the parts of its logits. With x_i
// the i-th part of the logits and t the class of a sample,
//   loss = log(sum over i of exp(lse_i)) - sum over i of [t in part i] x_i[t],
//   lse_i = logsumexp(x_i),
// so a sample's two numbers leave each part; logsumexp subtracts the maximum, of a part and of the
// parts. Samples of the ignored class count as in the original, and a class that is not there is an
// error as it is there. REQUIRES: IsVocabularyLoss(graph, node).
void ReplaceVocabularyLoss(const Graph& graph, NodeId node, const std::vector<NodeId>& logits,
                           GraphEdit& edit);

}  // namespace stagewright
