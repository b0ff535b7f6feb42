// Graphs on the wire with operators cut in parallel parts (common/rewrite).
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/graph/operator_split.h"
#include "stagewright/v1/graph.pb.h"

namespace stagewright {

// The graph and its lengths after the rewrite; a copy if there are no splits. Errors of FromProto
// and SplitOperators.
absl::StatusOr<v1::Graph> SplitGraph(const v1::Graph& graph,
                                     const std::vector<OperatorSplit>& splits);

}  // namespace stagewright
