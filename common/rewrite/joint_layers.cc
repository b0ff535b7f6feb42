#include "common/rewrite/joint_layers.h"

#include <optional>

#include "common/rewrite/matrix_operand.h"
#include "common/rewrite/split_decisions.h"

namespace stagewright {
namespace {

constexpr int32_t kMostLayers = 4;  // The gates of a recurrent cell; q, k and v are three.

}  // namespace

int32_t JointLayers(const Graph& graph, NodeId node, int32_t parts) {
  const std::optional<MatrixOperand> matrix = MatrixOf(graph, node);
  if (!matrix.has_value() || matrix->embedding) return 1;
  // The others that read the matrix would have to be parted like it.
  if (NodesOfMatrix(graph, matrix->weight).size() > 1) return 1;
  const int64_t size = graph.parameter(matrix->weight).shape[matrix->out_dim];
  for (int32_t layers = 2; layers <= kMostLayers; ++layers) {
    if (size % (static_cast<int64_t>(layers) * parts) != 0) continue;
    const SplitDecisions decisions(graph, {{node, layers}});
    if (decisions.AnyTaken() && !decisions.AnyJoined()) return layers;
  }
  return 1;
}

}  // namespace stagewright
