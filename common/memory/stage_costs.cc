#include "common/memory/stage_costs.h"

#include <algorithm>
#include <iterator>

#include "common/cost/parameters.h"
#include "common/memory/parameter_shares.h"
#include "common/training/autocast.h"

namespace stagewright {

StageBytes::StageBytes(const MessageTypes& types, const CostModel& costs,
                       const std::vector<ProgramStage>& stages,
                       const std::vector<Channel>& channels, std::vector<bool> split,
                       PassingGradients passing)
    : types_(types),
      costs_(costs),
      stages_(stages),
      split_(std::move(split)),
      passing_(std::move(passing)),
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
  tape = MakeStageTape(types_, order_.Of(contents), given_[stage.index()], contents.has_backward,
                       passing_.parameters);
  const bool passes = !passing_.stages.empty() && passing_.stages[stage.index()];
  for (TapeStep& step : tape->steps) {
    if (passes && step.profiled)
      step.passing_parameters = GradientBytes(*graph().node(step.node).cost);
  }
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

namespace {

// What `bytes_of` says of the planning-only nodes of a stage, as far as the reduction sums theirs.
template <typename BytesOf>
Bytes OfProfiled(const Graph& graph, const ProgramStage& stage, const Reduction& reduction,
                 BytesOf bytes_of) {
  Bytes unnamed = reduction.bytes;
  for (ParameterId id : reduction.parameters) unnamed -= graph.parameter(id).SizeBytes();
  if (unnamed <= 0) return 0;
  Bytes all = 0, said = 0;
  for (NodeId node : stage.nodes) {
    const auto& cost = graph.node(node).cost;
    if (!cost.has_value()) continue;
    all += cost->parameter_bytes;
    said += bytes_of(*cost);
  }
  const double share = static_cast<double>(unnamed) / static_cast<double>(all);
  return Bytes(static_cast<int64_t>(share * static_cast<double>(said)));
}

}  // namespace

Bytes StateOfOthers(const Graph& graph, const ProgramStage& stage, const Reduction& reduction,
                    DeviceId device, Optimizer optimizer) {
  if (!reduction.sharded) return 0;
  Bytes others = 0;
  for (const ParameterRange& own : SharesOf(graph, reduction, device)) {
    const Parameter& parameter = graph.parameter(own.id);
    const int64_t elements = parameter.Elements();
    if (elements == 0) continue;
    others += OptimizerStateBytes(parameter, optimizer) / elements * (elements - own.size());
  }
  const Bytes summed = OfProfiled(graph, stage, reduction, [&](const ProfiledCost& cost) {
    return OptimizerStateBytes(cost, optimizer);
  });
  return others + summed - Bytes(ShareSize(summed.count(), std::ssize(reduction.devices)));
}

PassingBytes PassingBytesOf(const Graph& graph, const ProgramStage& stage,
                            const Reduction& reduction) {
  PassingBytes bytes;
  if (!reduction.each_pass) return bytes;
  for (ParameterId id : reduction.parameters) bytes.named += graph.parameter(id).SizeBytes();
  bytes.profiled = OfProfiled(graph, stage, reduction,
                              [](const ProfiledCost& cost) { return GradientBytes(cost); });
  return bytes;
}

Bytes KeptSums(const Graph& graph, const ProgramStage& stage, const Reduction& reduction,
               DeviceId device) {
  if (!reduction.each_pass) return 0;
  Bytes kept = 0;
  for (const ParameterRange& own : SharesOf(graph, reduction, device))
    kept += own.size() * SizeOf(graph.parameter(own.id).dtype);
  const Bytes profiled = PassingBytesOf(graph, stage, reduction).profiled;
  return kept + Bytes(ShareSize(profiled.count(), std::ssize(reduction.devices)));
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
