// Executable graphs of small layers, whose programs a reader can check.
#pragma once

#include <cstdint>
#include <vector>

#include "common/graph/graph.h"

namespace stagewright::testing {

// Layers of one float32 feature: node i is a layer with one parameter, layer i, over the nodes in
// `reads[i]` (the input if there is none). The last one gets the loss, one more node.
Graph LinearGraph(const std::vector<std::vector<int32_t>>& reads);
// `length` linear layers, nodes 0 to length - 1, and the loss, node `length`.
Graph ChainGraph(int32_t length);

}  // namespace stagewright::testing
