// What a graph may have workers do.
#pragma once

#include "common/base/status.h"
#include "common/graph/graph_data.h"

namespace stagewright {

// INVALID_ARGUMENT names node, operator and what is wrong unless the node's operator is allowed and
// its text arguments are words that operators know: "tanh", "same", an equation of einsum. Nodes
// that carry costs instead of an operator pass.
absl::Status CheckOperator(const Node& node);

// CheckOperator of all nodes, those of the totals too; the message begins with the field. O(size).
absl::Status CheckOperators(const GraphData& data);

}  // namespace stagewright
