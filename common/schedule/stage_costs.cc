#include "common/schedule/stage_costs.h"

#include <algorithm>

#include "common/cost/retention.h"

namespace stagewright {
StageBytes::StageBytes(const Graph& graph, const CostModel& costs,
                       const std::vector<ProgramStage>& stages,
                       const std::vector<Channel>& channels)
    : graph_(graph), costs_(costs), stages_(stages), roots_(stages.size()) {
  const auto kept = KeptOutputs(graph);
  std::vector<StageId> owner(graph.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    for (NodeId node : stages[s].nodes) owner[node.index()] = StageId(static_cast<int64_t>(s));
  }
  for (const Channel& channel : channels) {
    if (!stages[channel.from.index()].has_backward) continue;
    std::vector<ValueRef>& roots = roots_[channel.from.index()];
    for (ValueRef value : channel.values) {
      const ValueRef storage = StorageOf(graph, value);
      const StageId home = owner[storage.node.index()];
      if (home.valid() && home != channel.from) continue;  // A view of what was received.
      if (graph.node(storage.node).cost || kept[storage.node.index()][storage.output]) continue;
      if (std::find(roots.begin(), roots.end(), storage) == roots.end()) roots.push_back(storage);
    }
  }
}

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
  for (ValueRef root : roots_[stage.index()]) bytes.outputs += graph_.meta(root).SizeBytes(samples);
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
    if (!graph.node(node).cost.has_value()) continue;
    const ProfiledCost& cost = *graph.node(node).cost;
    resident += training ? ResidentBytes(cost, optimizer) : cost.parameter_bytes;
  }
  return resident;
}

Bytes WeightBytesOf(const Graph& graph, const ProgramStage& stage) {
  if (!stage.has_backward) return 0;
  Bytes bytes = 0;
  for (ParameterId p : ParametersOf(graph, stage.nodes)) {
    if (graph.parameter(p).trainable) bytes += graph.parameter(p).SizeBytes();
  }
  for (NodeId node : stage.nodes) {
    if (graph.node(node).cost.has_value()) bytes += graph.node(node).cost->parameter_bytes;
  }
  return bytes;
}

}  // namespace stagewright
