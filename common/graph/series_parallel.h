// Series-parallel decomposition of a DAG, over vertices, by its reachability order (GraphPipe
// section 5).
//
// Series(A, B): every vertex of A precedes every vertex of B. Parallel(A, B): no vertex of A is
// comparable with one of B. Edges implied by a longer path (residual connections) do not count: the
// decomposition is that of the transitive reduction. A block that is neither is *converted*: a
// boundary between two levels (longest path from the block's first vertices) becomes a series cut,
// which adds order between vertices and never removes any, so a stage graph found on the tree is
// acyclic on the graph. The boundary is the one that leaves the fewest halves in one piece, so that
// a link between two branches is cut right there; ties: nearest the middle, then crossed by the
// fewest edges, then the earlier. `converted_blocks` counts these cuts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/dag.h"

namespace stagewright {

struct SpTree {
  enum class Kind { kLeaf, kSeries, kParallel };
  struct Vertex {
    Kind kind = Kind::kLeaf;
    int32_t leaf = -1;              // kLeaf: the vertex of the DAG.
    std::vector<int32_t> children;  // kSeries: in order; kParallel: by smallest vertex. At least
                                    // two, never of own kind.
  };
  std::vector<Vertex> vertices;  // Children before parents; the root is last.
  int32_t converted_blocks = 0;

  int32_t root() const { return static_cast<int32_t>(vertices.size()) - 1; }
};

// O(n^2 + n m / 64) for series-parallel graphs. The DAG must not be empty.
SpTree Decompose(const Dag& dag);

// "S(0 P(1 S(2 3)) 4)".
std::string ToString(const SpTree& tree);

// The vertices of the DAG below a vertex of the tree, depth first. O(result).
std::vector<int32_t> LeavesOf(const SpTree& tree, int32_t vertex);

// By vertex of the tree: the sum of the values of all leaves below it, which are by vertex of the
// DAG. O(vertices).
std::vector<double> SumsBelow(const SpTree& tree, const std::vector<double>& values);

// A chain over the same vertices in an order that keeps branches together (depth first over the
// tree): what planners for sequential pipelines see.
std::vector<int32_t> Linearize(const SpTree& tree);

}  // namespace stagewright
