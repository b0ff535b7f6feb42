// What a node's samples come from: the part of the graph above it, as a tree.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/evaluator/bounds/least_costs.h"

namespace stagewright {

// An ancestor of the root, or the root. Where one has several readers in the tree, one of them is
// its parent and the others are left out, so that no tensor counts twice.
struct TreeNode {
  int32_t node = 0;
  int32_t parent = -1;    // Index in the tree, smaller than its own; -1 for the root.
  double work = 0;        // ns a sample occupies a device, forward and backward.
  double activation = 0;  // Bytes a sample that the parent reads.
  double gradient = 0;    // Bytes a sample that come back; 0 where the root's do not reach it.
  double parameters = 0;  // Bytes of gradients that replicas sum.
};
using ProducerTree = std::vector<TreeNode>;

// At most so many of the nearest nodes. O(most * degree).
ProducerTree ProducersOf(const BoundProblem& problem, const std::vector<HeldBytes>& first_uses,
                         int32_t root, int32_t most);

}  // namespace stagewright
