#include "planner_service/planners/piper/from_problem.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/base/check.h"
#include "common/cost/value_bytes.h"
#include "planner_service/models/stage_oracle.h"

namespace stagewright {
namespace {

std::vector<std::pair<int32_t, double>> ToSync(const std::vector<NeighborBytes>& sync) {
  std::vector<std::pair<int32_t, double>> result;
  for (const NeighborBytes& entry : sync) {
    result.emplace_back(entry.node.value(), static_cast<double>(entry.bytes));
  }
  return result;
}

PiperMode OwnMode(const ProfiledCost& cost) {
  PiperMode mode;
  mode.keep.time = static_cast<double>(cost.forward + cost.backward);
  mode.keep.per_micro_batch = static_cast<double>(cost.saved_bytes.value_or(cost.activation_bytes));
  mode.keep.fixed = static_cast<double>(cost.resident_bytes.value_or(cost.parameter_bytes));
  mode.parameter_bytes = static_cast<double>(cost.parameter_bytes);
  return mode;
}

std::vector<PiperMode> ModesOf(const ProfiledCost& cost) {
  if (cost.configurations.empty()) return {OwnMode(cost)};
  std::vector<PiperMode> modes;
  for (const ProfiledConfiguration& way : cost.configurations) {
    const PiperChoice choice = {static_cast<double>(way.time), static_cast<double>(way.saved_bytes),
                                static_cast<double>(way.resident_bytes)};
    if (!modes.empty() && modes.back().degree == way.tensor_parallel) {
      modes.back().recompute = choice;  // Sorted: it comes second.
      continue;
    }
    PiperMode& mode = modes.emplace_back();
    mode.degree = way.tensor_parallel;
    mode.keep = choice;
    mode.parameter_bytes = static_cast<double>(way.parameter_bytes);
    mode.sync_from = ToSync(way.sync_from);
    mode.sync_to = ToSync(way.sync_to);
  }
  return modes;
}

// The harmonic mean over pairs of devices: what a byte takes on average. Bytes per ns.
double MeanBandwidth(const Cluster& cluster) {
  double nanos_per_byte = 0;
  int64_t pairs = 0;
  for (int32_t a = 0; a < cluster.size(); ++a) {
    for (int32_t b = 0; b < cluster.size(); ++b) {
      if (a == b) continue;
      nanos_per_byte += 1e9 / cluster.route(DeviceId(a), DeviceId(b)).bytes_per_second;
      ++pairs;
    }
  }
  return pairs == 0 ? 1 : static_cast<double>(pairs) / nanos_per_byte;
}

}  // namespace

PiperProblem PiperProblemOfProfile(const Graph& graph, const PiperMachine& machine) {
  PiperProblem problem;
  problem.dag = graph.dag();
  for (int32_t v = 0; v < graph.size(); ++v) {
    CHECK(graph.node(NodeId(v)).cost.has_value());
    problem.modes.push_back(ModesOf(*graph.node(NodeId(v)).cost));
    for (int32_t u : graph.dag().Predecessors(v)) {
      const Bytes bytes = ProfiledEdgeBytes(graph, NodeId(u), NodeId(v));
      problem.edges.push_back({u, v, static_cast<double>(bytes)});
    }
  }
  problem.micro_batches = machine.micro_batches;
  problem.devices = machine.devices;
  problem.memory = static_cast<double>(machine.memory);
  problem.bandwidth = machine.bytes_per_second * 1e-9;
  return problem;
}

PiperProblem PiperProblemOf(const OperatorCosts& costs, int64_t samples, double memory_share,
                            RecomputePolicy policy) {
  const Problem& ours = costs.problem();
  const Cluster& cluster = *ours.cluster;
  const DeviceKind* slowest = &SlowestKind(ours, 1);
  const ShareTable& share = costs.Share(samples);
  const auto& times = share.time[slowest - cluster.kinds().data()];
  PiperProblem problem;
  problem.dag = ours.operators->dag();
  problem.micro_batches = ours.mini_batch / samples;
  problem.devices = cluster.size();
  problem.bandwidth = MeanBandwidth(cluster);
  problem.recompute_by_stage = true;
  problem.inputs_in_memory = true;
  Bytes memory = cluster.device(DeviceId(0)).memory;
  for (const Device& device : cluster.devices()) memory = std::min(memory, device.memory);
  problem.memory = static_cast<double>(memory) * memory_share;
  std::map<std::pair<int32_t, int32_t>, double> edges;
  for (const auto& [from, to] : problem.dag.Edges()) edges[{from, to}] = 0;
  for (const OperatorCosts::Value& value : costs.values()) {
    for (const OperatorCosts::Use& use : value.uses) {
      edges[{value.producer, use.consumer}] +=
          static_cast<double>(value.bytes_per_sample) * static_cast<double>(samples);
    }
  }
  for (const auto& [edge, bytes] : edges) problem.edges.push_back({edge.first, edge.second, bytes});
  for (int32_t op = 0; op < costs.size(); ++op) {
    PiperMode mode;
    const auto forward = static_cast<double>(times[op].forward);
    const auto saved = static_cast<double>(share.saved[op]);
    const auto resident = static_cast<double>(costs.held(op).planned.resident);
    mode.keep = {forward + static_cast<double>(times[op].backward), saved, resident};
    const PiperChoice again = {mode.keep.time + forward, 0, resident + saved};
    if (policy == RecomputePolicy::kAllowed) mode.recompute = again;
    if (policy == RecomputePolicy::kAlways) mode.keep = again;
    mode.parameter_bytes = static_cast<double>(costs.held(op).planned.gradients);
    problem.modes.push_back({std::move(mode)});
  }
  return problem;
}

}  // namespace stagewright
