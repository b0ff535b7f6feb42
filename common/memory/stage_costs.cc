#include "common/memory/stage_costs.h"

#include <algorithm>
#include <iterator>

#include "common/cost/parameters.h"
#include "common/memory/parameter_shares.h"
#include "common/training/autocast.h"

namespace stagewright {

StageBytes::StageBytes(const MessageTypes& types, const CostModel& costs,
                       const std::vector<ProgramStage>& stages,
                       const std::vector<Channel>& channels, std::vector<bool> split)
    : types_(types),
      costs_(costs),
      stages_(stages),
      split_(std::move(split)),
      order_(types.graph()),
      given_(stages.size()),
      tapes_(stages.size()) {
  for (const Channel& channel : channels) {
    GivenValues& given = given_[channel.from.index()];
    std::vector<ValueRef>& values = channel.local() ? given.local : given.sent;
    for (ValueRef value : channel.values) {
      // The sum of gradients of several messages is the stage's own memory.
      const bool again = std::find(values.begin(), values.end(), value) != values.end();
      if (!again || !channel.local()) (again ? given.local : values).push_back(value);
    }
  }
}

const StageTape& StageBytes::TapeOf(StageId stage) {
  std::optional<StageTape>& tape = tapes_[stage.index()];
  if (tape.has_value()) return *tape;
  const ProgramStage& contents = stages_[stage.index()];
  tape = MakeStageTape(types_, order_.Of(contents), given_[stage.index()], contents.has_backward);
  return *tape;
}

const StageMemory& StageBytes::Of(StageId stage, int64_t samples) {
  const auto [entry, is_new] = known_.try_emplace({stage, samples});
  if (is_new) {
    entry->second = FollowStage(graph(), costs_, TapeOf(stage), samples,
                                stages_[stage.index()].has_backward, split_[stage.index()]);
  }
  return entry->second;
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

Bytes StateOfOthers(const Graph& graph, const ProgramStage& stage, const Reduction& reduction,
                    DeviceId device, Optimizer optimizer) {
  if (!reduction.sharded) return 0;
  Bytes others = 0;
  // What planning-only nodes have of it.
  Bytes unnamed = reduction.bytes;
  for (const ParameterRange& own : SharesOf(graph, reduction, device)) {
    const Parameter& parameter = graph.parameter(own.id);
    const int64_t elements = parameter.Elements();
    unnamed -= parameter.SizeBytes();
    if (elements == 0) continue;
    others += OptimizerStateBytes(parameter, optimizer) / elements * (elements - own.size());
  }
  if (unnamed <= 0) return others;
  Bytes all = 0, state = 0;
  for (NodeId node : stage.nodes) {
    const auto& cost = graph.node(node).cost;
    if (!cost.has_value()) continue;
    all += cost->parameter_bytes;
    state += OptimizerStateBytes(*cost, optimizer);
  }
  const double share = static_cast<double>(unnamed) / static_cast<double>(all);
  const Bytes summed(static_cast<int64_t>(share * static_cast<double>(state)));
  return others + summed - Bytes(ShareSize(summed.count(), std::ssize(reduction.devices)));
}

Bytes GradientBytesOf(const Graph& graph, const std::vector<ProgramStage>& stages,
                      const std::vector<StageId>& on_device) {
  std::vector<NodeId> nodes;
  for (StageId s : on_device) {
    nodes.insert(nodes.end(), stages[s.index()].nodes.begin(), stages[s.index()].nodes.end());
  }
  Bytes bytes = 0;
  for (ParameterId p : ParametersOf(graph, nodes)) {
    if (graph.parameter(p).trainable) bytes += graph.parameter(p).SizeBytes();
  }
  return bytes;
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

Bytes CastBytesOf(const Graph& graph, const ProgramStage& stage, Precision precision) {
  if (!IsMixed(precision)) return 0;
  std::vector<NodeId> takers;
  for (const std::vector<NodeId>* nodes : {&stage.nodes, &stage.replicated}) {
    std::copy_if(nodes->begin(), nodes->end(), std::back_inserter(takers),
                 [&](NodeId node) { return CastsWeights(graph, node, precision); });
  }
  Bytes bytes = 0;
  for (ParameterId p : ParametersOf(graph, takers))
    bytes += CastBytes(graph.parameter(p), precision);
  return bytes;
}

}  // namespace stagewright
