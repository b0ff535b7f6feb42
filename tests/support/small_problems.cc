#include "tests/support/small_problems.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/cost/analytic.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"

namespace stagewright::testing {
namespace {

constexpr double kProfiledRate = 1e12;  // FLOP/s of the kind that was profiled.

enum class Shape { kChain, kFan, kDiamonds, kSkips, kTangle };
constexpr const char* kShapeNames[] = {"chain", "fan", "diamonds", "skips", "tangle"};

Work RandomWork(Rng& random) {
  Work work;
  work.forward = Uniform(random, 20, 300) * kMicrosecond;
  work.backward = work.forward * Uniform(random, 10, 22) / 10;
  work.activation_bytes = Uniform(random, 1, 40) * 16 * kKiB;
  // Some operators hold most of the parameters, as embeddings and wide layers do.
  work.parameter_bytes = Uniform(random, 0, 3) == 0 ? Uniform(random, 1, 24) * kMiB : 64 * kKiB;
  return work;
}

// Edges of the shape; every operator but the first ones reads an earlier one.
std::vector<std::vector<int32_t>> Predecessors(Rng& random, Shape shape, int32_t n) {
  std::vector<std::vector<int32_t>> before(n);
  for (int32_t v = 1; v < n; ++v) before[v] = {v - 1};
  if (shape == Shape::kFan) {
    // Branches of equal length that meet in the last operator.
    const auto branches = static_cast<int32_t>(Uniform(random, 2, std::min(4, n - 1)));
    before[n - 1].clear();
    for (int32_t v = 0; v < n - 1; ++v) {
      before[v] = v < branches ? std::vector<int32_t>{} : std::vector<int32_t>{v - branches};
      if (v + branches >= n - 1) before[n - 1].push_back(v);
    }
  } else if (shape == Shape::kDiamonds) {
    // A fork, two sides, a join, and again.
    for (int32_t v = 1; v < n; ++v) {
      const int32_t phase = v % 3;
      if (phase == 2) before[v] = {v - 2};
      if (phase == 0) before[v] = {v - 2, v - 1};
    }
  } else if (shape == Shape::kSkips) {
    for (int32_t v = 2; v < n; ++v) {
      if (Uniform(random, 0, 1) == 0)
        before[v].insert(before[v].begin(), Uniform(random, 0, v - 2));
    }
  } else if (shape == Shape::kTangle) {
    for (int32_t v = 1; v < n; ++v) {
      before[v].clear();
      for (int32_t u = std::max(0, v - 4); u < v; ++u) {
        if (Uniform(random, 0, 2) == 0) before[v].push_back(u);
      }
    }
  }
  return before;
}

Graph RandomShape(Rng& random, Shape shape, int32_t n) {
  const auto before = Predecessors(random, shape, n);
  std::vector<Work> nodes;
  for (int32_t v = 0; v < n; ++v) {
    nodes.push_back(RandomWork(random));
    nodes.back().after = before[v];
  }
  return ProfiledGraph(nodes);
}

Cluster SmallCluster(Rng& random, int32_t devices, bool mixed, Bytes memory) {
  HierarchicalSpec spec;
  spec.name = "small";
  spec.nodes = devices == 4 && Uniform(random, 0, 1) == 0 ? 2 : 1;
  spec.devices_per_node = devices / spec.nodes;
  spec.kind.name = "slow";
  spec.kind.flops_per_second = kProfiledRate;
  spec.kind.memory_bytes_per_second = 1e12;
  spec.kind.kernel_overhead = Uniform(random, 0, 20) * kMicrosecond;
  spec.memory = memory;
  spec.inside = {"port", 2 * kMicrosecond, static_cast<double>(Uniform(random, 5, 50)) * 1e9};
  spec.outside = {"uplink", 20 * kMicrosecond, static_cast<double>(Uniform(random, 2, 10)) * 1e9};
  ClusterData data = MakeHierarchical(spec).value().data();
  if (mixed) {
    data.kinds.push_back(data.kinds[0]);
    data.kinds[1].name = "fast";
    data.kinds[1].flops_per_second *= static_cast<double>(Uniform(random, 15, 30)) / 10;
    for (size_t d = 0; d < data.devices.size(); d += 2) data.devices[d].kind = 1;
  }
  return Cluster::Create(std::move(data)).value();
}

// Every device behind a port of its own, or two by two behind those of their nodes.
Cluster LeanCluster(Rng& random, int32_t devices, bool mixed, Bytes memory) {
  HierarchicalSpec spec;
  spec.name = "lean";
  spec.nodes = devices == 4 && Uniform(random, 0, 1) == 0 ? 2 : 1;
  spec.devices_per_node = devices / spec.nodes;
  spec.kind.name = "slow";
  spec.kind.flops_per_second = kProfiledRate;
  spec.kind.memory_bytes_per_second = 1e12;
  spec.kind.kernel_overhead = Uniform(random, 0, 60) * kMicrosecond;
  spec.memory = memory;
  const auto rate = static_cast<double>(Uniform(random, 1, 200)) * 2e7;
  spec.inside = {"port", Uniform(random, 0, 20) * kMicrosecond, rate};
  spec.outside = {"uplink", Uniform(random, 0, 90) * kMicrosecond, rate / 2};
  ClusterData data = MakeHierarchical(spec).value().data();
  if (mixed) {
    data.kinds.push_back(data.kinds[0]);
    data.kinds[1].name = "fast";
    data.kinds[1].flops_per_second *= static_cast<double>(Uniform(random, 12, 40)) / 10;
    data.devices[0].kind = 1;
  }
  return Cluster::Create(std::move(data)).value();
}

// Finishes a problem whose graph is set.
void SetCluster(Cluster cluster, SmallProblem& small) {
  small.cluster = std::move(cluster);
  small.operators = OneOperatorPerNode(small.graph).value();
  small.costs = std::make_unique<RatedProfileCosts>(small.graph);
}

}  // namespace

RatedProfileCosts::RatedProfileCosts(const Graph& graph)
    : graph_(&graph), profile_(MakeAnalyticCostModel(graph)) {}

OperatorTime RatedProfileCosts::Time(NodeId node, const DeviceKind& kind, int64_t samples) const {
  OperatorTime time = profile_->Time(node, kind, samples);
  if (samples <= 0) return time;
  const double rate = kProfiledRate / kind.flops_per_second;
  const auto scaled = [&](Nanos nanos) -> Nanos {
    if (nanos == 0) return 0;
    return kind.kernel_overhead + Nanos(std::llround(static_cast<double>(nanos) * rate));
  };
  time.forward = scaled(time.forward);
  time.backward_input = scaled(time.backward_input);
  time.backward_weight = scaled(time.backward_weight);
  time.backward = time.backward_input + time.backward_weight;
  return time;
}

Bytes RatedProfileCosts::SavedBytes(NodeId node, int64_t samples) const {
  return profile_->SavedBytes(node, samples);
}

Bytes RatedProfileCosts::WorkspaceBytes(NodeId node, int64_t samples) const {
  return profile_->WorkspaceBytes(node, samples);
}

std::unique_ptr<SmallProblem> MakeSmallProblem(int32_t index) {
  Rng random(9001 + static_cast<uint64_t>(index));
  const auto shape = static_cast<Shape>(index % 5);
  const auto n = static_cast<int32_t>(Uniform(random, 4, 10));
  const auto devices = static_cast<int32_t>(Uniform(random, 2, 4));
  const bool mixed = index % 2 == 1;
  constexpr int64_t kMiniBatches[] = {4, 6, 8, 12, 16};
  auto small = std::make_unique<SmallProblem>();
  small->mini_batch = kMiniBatches[Uniform(random, 0, 4)];
  small->graph = RandomShape(random, shape, n);
  Bytes parameters = 0;
  Bytes largest = 0;
  Bytes activations = 0;
  for (const Node& node : small->graph.nodes()) {
    parameters += node.cost->parameter_bytes;
    largest = std::max(largest, node.cost->parameter_bytes);
    activations += node.cost->activation_bytes;
  }
  // One time in four the model does not fit on a device, or only with a few samples in flight.
  const Bytes fair = 3 * parameters / devices;  // With gradients, half as much again.
  const Bytes tight = std::max(fair, 2 * largest) + 4 * activations;
  const Bytes memory = Uniform(random, 0, 3) == 0 ? tight : 16 * kGiB;
  SetCluster(SmallCluster(random, devices, mixed, memory), *small);
  small->name =
      absl::StrCat(index, ": ", kShapeNames[index % 5], ", ", n, " operators, ", devices,
                   mixed ? " mixed devices" : " devices", ", mini-batch ", small->mini_batch);
  return small;
}

std::unique_ptr<SmallProblem> MakeLeanProblem(int32_t index) {
  Rng random(70'001 + static_cast<uint64_t>(index));
  constexpr Shape kShapes[] = {Shape::kFan, Shape::kDiamonds, Shape::kTangle, Shape::kFan,
                               Shape::kChain};
  constexpr int64_t kMiniBatches[] = {1, 2, 3, 4, 6, 8};
  const Shape shape = kShapes[index % 5];
  const auto n = static_cast<int32_t>(Uniform(random, 3, 7));
  const auto devices = static_cast<int32_t>(Uniform(random, 2, 4));
  const bool mixed = Uniform(random, 0, 2) == 0;
  auto small = std::make_unique<SmallProblem>();
  small->mini_batch = kMiniBatches[Uniform(random, 0, 5)];
  small->graph = RandomShape(random, shape, n);
  SetCluster(LeanCluster(random, devices, mixed, 16 * kGiB), *small);
  small->name = absl::StrCat("lean ", index, ": ", kShapeNames[static_cast<int>(shape)], ", ", n,
                             " operators, ", devices, mixed ? " mixed devices" : " devices",
                             ", mini-batch ", small->mini_batch);
  return small;
}

}  // namespace stagewright::testing
