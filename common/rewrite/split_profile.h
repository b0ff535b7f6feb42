// A node of a profile as parallel parts and a node that joins them.
#pragma once

#include <cstdint>

#include "common/graph/graph.h"
#include "common/rewrite/graph_edit.h"

namespace stagewright {

// Shares the times of the node, its parameters and what it gives out evenly; each part reads and
// keeps what the node read and kept. The node itself becomes what joins the parts, which takes no
// time and keeps nothing. Ways to run the node on several devices are left out.
// REQUIRES: the node is planning-only and parts > 1.
void SplitProfiledNode(const Graph& graph, NodeId node, int32_t parts, GraphEdit& edit);

}  // namespace stagewright
