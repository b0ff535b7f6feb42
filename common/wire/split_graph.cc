#include "common/wire/split_graph.h"

#include "common/rewrite/split_operators.h"
#include "common/wire/graph_proto.h"

namespace stagewright {

absl::StatusOr<v1::Graph> SplitGraph(const v1::Graph& graph,
                                     const std::vector<OperatorSplit>& splits) {
  if (splits.empty()) return graph;
  ASSIGN_OR_RETURN(const Graph whole, FromProto(graph));
  ASSIGN_OR_RETURN(const Graph split, SplitOperators(whole, splits));
  v1::Graph proto = ToProto(split);
  for (const v1::Graph& length : graph.lengths()) {
    ASSIGN_OR_RETURN(*proto.add_lengths(), SplitGraph(length, splits));
  }
  return proto;
}

}  // namespace stagewright
