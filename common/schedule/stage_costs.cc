#include "common/schedule/stage_costs.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "common/cost/retention.h"

namespace stagewright {
namespace {

// What a node of a stage depends on.
enum class Origin : uint8_t { kConstant, kParameters, kActivations };

// How the backward pass of a stage falls into halves, node by node, in the order of execution.
struct SplitNode {
  NodeId node;
  int32_t level = 0;   // Nodes with parameters on the longest path up to and with this one.
  bool waits = false;  // What it saves stays until the weight half.
  bool keeps_gradient = false;  // So do the gradients of its outputs.
};

// A node takes part in the weight half if it reads a trainable parameter or what depends on
// parameters alone; it keeps what it reads and makes, through views. What depends on parameters
// alone waits as a whole.
std::vector<SplitNode> SplitNodes(const Graph& graph, const ProgramStage& stage) {
  std::vector<bool> inside(graph.size(), false);
  for (const auto* nodes : {&stage.replicated, &stage.nodes}) {
    for (NodeId node : *nodes) inside[node.index()] = true;
  }
  std::vector<Origin> origin(graph.size(), Origin::kActivations);
  std::vector<int32_t> level(graph.size(), 0);
  std::vector<bool> waits(graph.size(), false);
  std::vector<SplitNode> split;
  for (int32_t v : graph.dag().order()) {
    if (!inside[v]) continue;
    const NodeId id(v);
    bool reads_parameters = false;
    for (ParameterId p : graph.Parameters(id)) {
      reads_parameters = reads_parameters || graph.parameter(p).trainable;
    }
    bool activations = !graph.Inputs(id).empty();
    for (ValueRef value : graph.Values(id)) {
      const int32_t from = value.node.index();
      activations = activations || origin[from] == Origin::kActivations;
      reads_parameters = reads_parameters || origin[from] == Origin::kParameters;
      level[v] = std::max(level[v], level[from]);
    }
    const bool profiled = graph.node(id).cost.has_value();
    activations = activations || profiled;
    origin[v] = activations ? Origin::kActivations
                            : (reads_parameters ? Origin::kParameters : Origin::kConstant);
    level[v] += reads_parameters && activations;
    if (reads_parameters || !activations || profiled) waits[v] = true;
    if (reads_parameters) {
      for (ValueRef value : graph.Values(id)) {
        waits[value.node.index()] = true;
        waits[StorageOf(graph, value).node.index()] = true;
      }
    }
    const bool has_gradient = graph.needs_backward(id) && !profiled;
    split.push_back({id, level[v], false, reads_parameters && activations && has_gradient});
  }
  for (SplitNode& node : split) node.waits = waits[node.node.index()];
  return split;
}

}  // namespace

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

// The input half goes from the last level to the first: gradients of outputs come up while what
// only that half reads goes.
const SplitBytes& StageBytes::SplitOf(StageId stage, int64_t samples) {
  const auto [entry, is_new] = known_splits_.try_emplace({stage, samples});
  if (!is_new) return entry->second;
  SplitBytes& bytes = entry->second;
  struct Level {
    Bytes gradients = 0;  // Made there and held until the weight half.
    Bytes freed = 0;
  };
  std::map<int32_t, Level, std::greater<>> levels;
  for (const SplitNode& node : SplitNodes(graph_, stages_[stage.index()])) {
    Level& level = levels[node.level];
    const Bytes saved = costs_.SavedBytes(node.node, samples);
    (node.waits ? bytes.between : level.freed) += saved;
    if (!node.keeps_gradient) continue;
    for (const TensorMeta& output : graph_.node(node.node).outputs) {
      if (IsFloating(output.dtype)) level.gradients += output.SizeBytes(samples);
    }
  }
  const ShareBytes& own = Of(stage, samples);
  Bytes held = own.saved + own.outputs;
  bytes.input_half = held;
  for (const auto& [number, level] : levels) {
    held += level.gradients;
    bytes.input_half = std::max(bytes.input_half, held);
    held -= level.freed;
    bytes.between += level.gradients;
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
