#include "common/strategy/batch_statistics.h"

#include <string_view>

#include "common/base/check.h"

namespace stagewright {
const char* BatchStatisticsName(BatchStatistics statistics) {
  switch (statistics) {
    case BatchStatistics::kWhole:
      return "whole";
    case BatchStatistics::kMicro:
      return "micro";
    case BatchStatistics::kSynchronised:
      return "synchronised";
  }
  CHECK(false);
}

// "aten.batch_norm.default", "aten._native_batch_norm_legit.default", ...
bool IsBatchNormalisation(const Node& node) {
  return std::string_view(node.target).starts_with("aten.") &&
         node.target.find("batch_norm") != std::string::npos;
}

bool NeedsWholeBatch(const Node& node, BatchStatistics statistics) {
  if (!node.batch_dependent) return false;
  return statistics != BatchStatistics::kMicro || !IsBatchNormalisation(node);
}

std::optional<NodeId> FirstOnWholeBatch(const Graph& graph, BatchStatistics statistics) {
  for (int32_t v = 0; v < graph.size(); ++v) {
    if (NeedsWholeBatch(graph.node(NodeId(v)), statistics)) return NodeId(v);
  }
  return std::nullopt;
}

}  // namespace stagewright
