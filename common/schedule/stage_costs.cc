#include "common/schedule/stage_costs.h"

#include <algorithm>

namespace stagewright {
namespace {

// Profiled parameters have no name; they count as trained float32.
Parameter ProfiledParameter(const ProfiledCost& cost) {
  Parameter parameter;
  parameter.shape = {(cost.parameter_bytes + SizeOf(parameter.dtype) - 1) /
                     SizeOf(parameter.dtype)};
  return parameter;
}

}  // namespace

const ShareBytes& StageBytes::Of(StageId stage, int64_t samples) {
  const auto [entry, is_new] = known_.try_emplace({stage, samples});
  if (!is_new) return entry->second;
  ShareBytes& bytes = entry->second;
  const ProgramStage& contents = stages_[stage.index()];
  for (const auto* nodes : {&contents.replicated, &contents.nodes}) {
    for (NodeId node : *nodes) {
      bytes.saved += costs_.SavedBytes(node, samples);
      bytes.workspace = std::max(bytes.workspace, costs_.WorkspaceBytes(node, samples));
    }
  }
  return bytes;
}

Bytes ResidentBytesOf(const Graph& graph, const std::vector<ProgramStage>& stages,
                      const std::vector<StageId>& on_device, Optimizer optimizer, bool training) {
  std::vector<NodeId> nodes;
  for (StageId s : on_device) {
    nodes.insert(nodes.end(), stages[s.index()].nodes.begin(), stages[s.index()].nodes.end());
  }
  const auto bytes_of = [&](const Parameter& parameter) {
    return training ? ResidentBytes(parameter, optimizer) : parameter.SizeBytes();
  };
  Bytes resident = 0;
  for (ParameterId p : ParametersOf(graph, nodes)) resident += bytes_of(graph.parameter(p));
  for (NodeId node : nodes) {
    if (graph.node(node).cost.has_value())
      resident += bytes_of(ProfiledParameter(*graph.node(node).cost));
  }
  return resident;
}

}  // namespace stagewright
