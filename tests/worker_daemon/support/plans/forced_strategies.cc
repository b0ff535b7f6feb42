#include "tests/worker_daemon/support/plans/forced_strategies.h"

#include <algorithm>
#include <set>

#include "common/strategy/in_flight.h"
#include "common/strategy/stage_edges.h"

namespace stagewright::testing {
namespace {

int64_t Below(std::mt19937_64& random, int64_t bound) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
}

// Nodes that depend on no parameter and no input: recomputed by every stage that reads them.
std::vector<bool> ConstantNodes(const Graph& graph) {
  std::vector<bool> constant(graph.size());
  for (int32_t v : graph.dag().order()) {
    const NodeId id(v);
    constant[v] = graph.Parameters(id).empty() && graph.Inputs(id).empty();
    for (int32_t u : graph.dag().Predecessors(v)) constant[v] = constant[v] && constant[u];
  }
  return constant;
}

std::vector<int32_t> RandomOrder(const Graph& graph, std::mt19937_64& random) {
  const bool depth_first = Below(random, 2) == 0;
  std::vector<int32_t> missing(graph.size()), ready, order;
  for (int32_t v = 0; v < graph.size(); ++v) {
    missing[v] = static_cast<int32_t>(graph.dag().Predecessors(v).size());
    if (missing[v] == 0) ready.push_back(v);
  }
  std::shuffle(ready.begin(), ready.end(), random);
  while (!ready.empty()) {
    const auto next = depth_first
                          ? ready.end() - 1
                          : ready.begin() + Below(random, static_cast<int64_t>(ready.size()));
    const int32_t v = *next;
    ready.erase(next);
    order.push_back(v);
    for (int32_t w : graph.dag().Successors(v)) {
      if (--missing[w] == 0) ready.push_back(w);
    }
  }
  return order;
}

// Places in the order, after the first and before the last node, that only batched tensors cross.
std::vector<size_t> Cuts(const Graph& graph, const std::vector<int32_t>& order,
                         const std::vector<bool>& constant) {
  std::vector<size_t> position(graph.size());
  for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  std::vector<bool> allowed(order.size() + 1, true);
  for (int32_t v : order) {
    for (ValueRef value : graph.Values(NodeId(v))) {
      if (constant[value.node.index()] || graph.meta(value).IsBatched()) continue;
      for (size_t p = position[value.node.index()] + 1; p <= position[v]; ++p) allowed[p] = false;
    }
  }
  std::vector<size_t> cuts;
  for (size_t p = 1; p < order.size(); ++p) {
    if (allowed[p]) cuts.push_back(p);
  }
  return cuts;
}

// The constant nodes that the stage's nodes read, in topological order.
std::vector<NodeId> ReplicatedBy(const Graph& graph, const std::vector<NodeId>& nodes,
                                 const std::vector<bool>& constant) {
  std::set<int32_t> found;
  std::vector<NodeId> frontier = nodes;
  while (!frontier.empty()) {
    const NodeId node = frontier.back();
    frontier.pop_back();
    for (int32_t u : graph.dag().Predecessors(node.value())) {
      if (constant[u] && found.insert(u).second) frontier.emplace_back(u);
    }
  }
  std::vector<NodeId> result;
  for (int32_t v : graph.dag().order()) {
    if (found.contains(v)) result.emplace_back(v);
  }
  return result;
}

void AssignWork(const StrategyShape& shape, std::mt19937_64& random, Strategy& strategy) {
  const auto stages = static_cast<int64_t>(strategy.stages.size());
  int64_t common = int64_t{1} << Below(random, 4);
  int32_t next_device = 0;
  for (Stage& stage : strategy.stages) {
    const int64_t own = shape.same_micro_batch ? common : int64_t{1} << Below(random, 4);
    const int64_t count = shape.micro_batches > 0 ? shape.micro_batches : own;
    stage.micro_batch = std::max<int64_t>(1, shape.mini_batch / count);
    stage.recompute = shape.recompute && Below(random, 2) == 0;
    const int64_t replicas = std::min(1 + Below(random, shape.most_replicas), stage.micro_batch);
    if (shape.share_devices) {
      // Any distinct devices of a pool smaller than the number of stages.
      std::vector<int32_t> pool(static_cast<size_t>(std::max<int64_t>(replicas, (stages + 1) / 2)));
      for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<int32_t>(i);
      std::shuffle(pool.begin(), pool.end(), random);
      for (int64_t r = 0; r < replicas; ++r) stage.devices.emplace_back(pool[r]);
    } else {
      for (int64_t r = 0; r < replicas; ++r) stage.devices.emplace_back(next_device++);
    }
  }
}

}  // namespace

Strategy ForceStrategy(const Graph& graph, const StrategyShape& shape, std::mt19937_64& random) {
  const std::vector<bool> constant = ConstantNodes(graph);
  std::vector<int32_t> order = RandomOrder(graph, random);
  std::erase_if(order, [&](int32_t v) { return constant[v]; });
  std::vector<size_t> cuts = Cuts(graph, order, constant);
  std::shuffle(cuts.begin(), cuts.end(), random);
  cuts.resize(std::min(cuts.size(), static_cast<size_t>(shape.stages - 1)));
  std::sort(cuts.begin(), cuts.end());
  cuts.push_back(order.size());

  Strategy strategy;
  strategy.kind = shape.kind;
  strategy.mini_batch = shape.mini_batch;
  size_t begin = 0;
  for (size_t end : cuts) {
    Stage stage;
    for (size_t i = begin; i < end; ++i) stage.nodes.emplace_back(order[i]);
    stage.replicated = ReplicatedBy(graph, stage.nodes, constant);
    strategy.stages.push_back(std::move(stage));
    begin = end;
  }
  AssignWork(shape, random, strategy);
  strategy.edges = StageEdges(graph, shape.kind, strategy.stages);
  AssignInFlight(strategy);
  // As many buckets as there can be, or one sum after the last backward pass.
  if (strategy.stages.size() % 2 == 1) strategy.bucket_bytes = 1;
  return strategy;
}

int32_t DevicesOf(const Strategy& strategy) {
  int32_t devices = 0;
  for (const Stage& stage : strategy.stages) {
    for (DeviceId device : stage.devices) devices = std::max(devices, device.value() + 1);
  }
  return devices;
}

}  // namespace stagewright::testing
