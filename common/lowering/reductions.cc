#include "common/lowering/reductions.h"

#include <algorithm>
#include <map>

namespace stagewright {
namespace {

template <typename T>
void SortUnique(std::vector<T>& items) {
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
}

std::vector<DeviceId> DevicesOf(const std::vector<ProgramStage>& stages,
                                const std::vector<StageId>& holders) {
  std::vector<DeviceId> devices;
  for (StageId s : holders) {
    const auto& replicas = stages[s.index()].devices;
    devices.insert(devices.end(), replicas.begin(), replicas.end());
  }
  SortUnique(devices);
  return devices;
}

}  // namespace

std::vector<Reduction> MakeReductions(const Graph& graph, const std::vector<ProgramStage>& stages) {
  std::vector<std::vector<StageId>> holders(graph.parameters().size());
  // One per set of stages, so that a stage's gradients are summed while others still compute.
  std::map<std::vector<StageId>, Reduction> groups;
  const auto add = [&](const std::vector<StageId>& of, Bytes bytes) -> Reduction* {
    std::vector<DeviceId> devices = DevicesOf(stages, of);
    if (devices.size() < 2) return nullptr;
    Reduction& group = groups[of];
    group.devices = std::move(devices);
    group.bytes += bytes;
    group.stages = of;
    return &group;
  };
  for (size_t s = 0; s < stages.size(); ++s) {
    const StageId stage(static_cast<int64_t>(s));
    Bytes profiled = 0;
    for (NodeId node : stages[s].nodes) {
      if (graph.node(node).cost.has_value()) profiled += graph.node(node).cost->parameter_bytes;
      for (ParameterId p : graph.Parameters(node)) {
        auto& of = holders[p.index()];
        if (of.empty() || of.back() != stage) of.push_back(stage);
      }
    }
    if (profiled > 0) add({stage}, profiled);
  }
  for (size_t p = 0; p < holders.size(); ++p) {
    const Parameter& parameter = graph.parameters()[p];
    if (!parameter.trainable || holders[p].empty()) continue;
    Reduction* group = add(holders[p], parameter.SizeBytes());
    if (group) group->parameters.push_back(ParameterId(static_cast<int64_t>(p)));
  }

  std::vector<Reduction> reductions;
  for (auto& [of, group] : groups) reductions.push_back(std::move(group));
  std::stable_sort(
      reductions.begin(), reductions.end(),
      [](const Reduction& a, const Reduction& b) { return a.stages.front() > b.stages.front(); });
  return reductions;
}

Reduction MakeNormReduction(const std::vector<ProgramStage>& stages) {
  Reduction norm;
  for (size_t s = 0; s < stages.size(); ++s)
    norm.stages.push_back(StageId(static_cast<int64_t>(s)));
  norm.devices = DevicesOf(stages, norm.stages);
  norm.bytes = sizeof(double);
  norm.gradient_norm = true;
  return norm;
}

}  // namespace stagewright
