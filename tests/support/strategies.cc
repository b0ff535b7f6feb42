#include "tests/support/strategies.h"

#include <algorithm>
#include <utility>

#include "common/strategy/in_flight.h"
#include "common/strategy/stage_edges.h"

namespace stagewright::testing {
namespace {

void Connect(const Graph& graph, Strategy& strategy) {
  strategy.edges = StageEdges(graph, strategy.kind, strategy.stages);
  AssignInFlight(strategy);
}

std::vector<int64_t> Divisors(int64_t n) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return divisors;
}

int64_t OneOf(Rng& rng, const std::vector<int64_t>& items) {
  return items[Uniform(rng, 0, static_cast<int64_t>(items.size()) - 1)];
}

// Every vertex as soon as it is ready, in rng order.
std::vector<int32_t> RandomOrder(Rng& rng, const Dag& dag) {
  std::vector<int32_t> missing(dag.size());
  std::vector<int32_t> ready;
  for (int32_t v = 0; v < dag.size(); ++v) {
    missing[v] = static_cast<int32_t>(dag.Predecessors(v).size());
    if (missing[v] == 0) ready.push_back(v);
  }
  std::vector<int32_t> order;
  while (!ready.empty()) {
    const int64_t pick = Uniform(rng, 0, static_cast<int64_t>(ready.size()) - 1);
    const int32_t v = ready[pick];
    ready.erase(ready.begin() + pick);
    order.push_back(v);
    for (int32_t w : dag.Successors(v)) {
      if (--missing[w] == 0) ready.push_back(w);
    }
  }
  return order;
}

std::vector<NodeId> NodesOf(const OperatorGraph& operators, const Graph& graph,
                            const std::vector<int32_t>& order, int64_t begin, int64_t end) {
  std::vector<bool> member(graph.size());
  for (int64_t i = begin; i < end; ++i) {
    for (NodeId node : operators.op(OperatorId(order[i])).nodes) member[node.index()] = true;
  }
  std::vector<NodeId> nodes;
  for (int32_t v : graph.dag().order()) {
    if (member[v]) nodes.push_back(NodeId(v));
  }
  return nodes;
}

}  // namespace

Strategy MakeStrategy(const Graph& graph, const std::vector<std::vector<int32_t>>& groups,
                      const std::vector<std::vector<int32_t>>& devices, int64_t mini_batch,
                      int64_t micro_batch, StrategyKind kind) {
  Strategy strategy;
  strategy.kind = kind;
  strategy.mini_batch = mini_batch;
  for (size_t s = 0; s < groups.size(); ++s) {
    Stage stage;
    for (int32_t node : groups[s]) stage.nodes.push_back(NodeId(node));
    for (int32_t device : devices[s]) stage.devices.push_back(DeviceId(device));
    stage.micro_batch = micro_batch;
    strategy.stages.push_back(std::move(stage));
  }
  Connect(graph, strategy);
  return strategy;
}

Strategy MakeStages(const Graph& graph, int64_t mini_batch, const std::vector<StageSpec>& specs,
                    StrategyKind kind) {
  Strategy strategy;
  strategy.kind = kind;
  strategy.mini_batch = mini_batch;
  for (const StageSpec& spec : specs) {
    Stage& stage = strategy.stages.emplace_back();
    for (int32_t node : spec.nodes) stage.nodes.push_back(NodeId(node));
    for (int32_t device : spec.devices) stage.devices.push_back(DeviceId(device));
    stage.micro_batch = spec.micro_batch;
    stage.schedule.k = spec.k;
  }
  Connect(graph, strategy);
  return strategy;
}

Strategy RandomStrategy(Rng& rng, const Graph& graph, const OperatorGraph& operators,
                        const Cluster& cluster, int64_t mini_batch) {
  Strategy strategy;
  strategy.kind = Uniform(rng, 0, 2) == 0 ? StrategyKind::kSequential : StrategyKind::kGraph;
  strategy.mini_batch = mini_batch;
  const std::vector<int32_t> order = RandomOrder(rng, operators.dag());
  const int64_t most = std::min<int64_t>(operators.size(), cluster.size());
  const int64_t num_stages = Uniform(rng, 1, most);
  std::vector<DeviceId> devices;
  for (int32_t d = 0; d < cluster.size(); ++d) devices.push_back(DeviceId(d));
  std::shuffle(devices.begin(), devices.end(), rng);
  const bool same_micro_batch = Uniform(rng, 0, 1) == 0;
  const int64_t common = OneOf(rng, Divisors(mini_batch));
  int64_t begin = 0;
  size_t next_device = 0;
  for (int64_t s = 0; s < num_stages; ++s) {
    const int64_t later = num_stages - s - 1;
    const int64_t end =
        later == 0 ? operators.size() : Uniform(rng, begin + 1, operators.size() - later);
    Stage stage;
    stage.nodes = NodesOf(operators, graph, order, begin, end);
    stage.replicated = ReplicatedInto(graph, operators, stage.nodes);
    stage.micro_batch = same_micro_batch ? common : OneOf(rng, Divisors(mini_batch));
    const auto spare = static_cast<int64_t>(devices.size() - next_device) - later;
    const int64_t replicas = Uniform(rng, 1, std::min(spare, stage.micro_batch));
    for (int64_t r = 0; r < replicas; ++r) stage.devices.push_back(devices[next_device++]);
    const int64_t micro_batches = mini_batch / stage.micro_batch;
    stage.schedule.k = micro_batches % 2 == 0 && Uniform(rng, 0, 3) == 0 ? 2 : 1;
    strategy.stages.push_back(std::move(stage));
    begin = end;
  }
  Connect(graph, strategy);
  return strategy;
}

}  // namespace stagewright::testing
