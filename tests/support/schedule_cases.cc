#include "tests/support/schedule_cases.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/graph/operator_graph.h"
#include "common/strategy/in_flight.h"
#include "common/strategy/stage_edges.h"
#include "tests/support/clusters.h"
#include "tests/support/random_graphs.h"

namespace stagewright::testing {
namespace {

std::vector<int32_t> RandomOrder(Rng& rng, const Dag& dag) {
  std::vector<size_t> missing(dag.size());
  std::vector<int32_t> ready, order;
  for (int32_t v = 0; v < dag.size(); ++v) {
    missing[v] = dag.Predecessors(v).size();
    if (missing[v] == 0) ready.push_back(v);
  }
  while (!ready.empty()) {
    std::swap(ready[Uniform(rng, 0, static_cast<int64_t>(ready.size()) - 1)], ready.back());
    const int32_t v = ready.back();
    ready.pop_back();
    order.push_back(v);
    for (int32_t w : dag.Successors(v)) {
      if (--missing[w] == 0) ready.push_back(w);
    }
  }
  return order;
}

// Distinct devices: fresh ones, or any of a small pool.
std::vector<DeviceId> DrawDevices(Rng& rng, int64_t replicas, bool shared, int32_t& fresh) {
  constexpr int32_t kPool = 3;
  std::vector<DeviceId> devices;
  if (!shared) {
    for (int64_t r = 0; r < replicas; ++r) devices.push_back(DeviceId(fresh++));
    return devices;
  }
  while (static_cast<int64_t>(devices.size()) < replicas) {
    const DeviceId device(Uniform(rng, 0, kPool - 1));
    if (std::find(devices.begin(), devices.end(), device) == devices.end())
      devices.push_back(device);
  }
  fresh = kPool;
  return devices;
}

Stage DrawStage(Rng& rng, int64_t mini_batch, bool shared, int32_t& fresh) {
  Stage stage;
  do {
    stage.micro_batch =
        Uniform(rng, 0, 1) == 0 ? int64_t{1} << Uniform(rng, 0, 5) : Uniform(rng, 1, 32);
  } while (mini_batch % stage.micro_batch != 0);
  const int64_t replicas = Uniform(rng, 1, std::min<int64_t>(3, stage.micro_batch));
  stage.devices = DrawDevices(rng, replicas, shared, fresh);
  stage.schedule.k = Uniform(rng, 0, 2) == 0 ? static_cast<int32_t>(Uniform(rng, 2, 3)) : 1;
  stage.recompute = Uniform(rng, 0, 4) == 0;
  return stage;
}

}  // namespace

RandomCase MakeRandomCase(Rng& rng) {
  Graph graph = RandomGraph(rng, static_cast<int32_t>(Uniform(rng, 1, 24)));
  auto operators = Coarsen(graph, std::vector<double>(graph.size(), 1.0));
  CHECK(operators.ok());
  const std::vector<int32_t> order = RandomOrder(rng, operators->dag());
  const auto count = static_cast<int64_t>(order.size());
  std::set<int64_t> cuts = {0};
  for (int64_t more = Uniform(rng, 0, 5); more > 0; --more) cuts.insert(Uniform(rng, 0, count - 1));

  Strategy strategy;
  strategy.kind = Uniform(rng, 0, 3) == 0 ? StrategyKind::kSequential : StrategyKind::kGraph;
  strategy.mini_batch =
      Uniform(rng, 0, 1) == 0 ? int64_t{1} << Uniform(rng, 0, 5) : Uniform(rng, 1, 32);
  const bool shared = Uniform(rng, 0, 3) == 0;
  int32_t fresh = 0;
  std::vector<int32_t> rank(graph.size());
  for (int32_t i = 0; i < graph.size(); ++i) rank[graph.dag().order()[i]] = i;
  for (auto cut = cuts.begin(); cut != cuts.end(); ++cut) {
    const int64_t end = std::next(cut) == cuts.end() ? count : *std::next(cut);
    Stage stage = DrawStage(rng, strategy.mini_batch, shared, fresh);
    for (int64_t i = *cut; i < end; ++i) {
      const auto& nodes = operators->op(OperatorId(order[i])).nodes;
      stage.nodes.insert(stage.nodes.end(), nodes.begin(), nodes.end());
    }
    std::sort(stage.nodes.begin(), stage.nodes.end(),
              [&](NodeId a, NodeId b) { return rank[a.index()] < rank[b.index()]; });
    stage.replicated = ReplicatedInto(graph, *operators, stage.nodes);
    strategy.stages.push_back(std::move(stage));
  }
  strategy.edges = StageEdges(graph, strategy.kind, strategy.stages);
  AssignInFlight(strategy);
  return {std::move(graph), std::move(strategy), TestCluster(fresh), shared};
}

RandomCase MakeUniformCase(Rng& rng) {
  RandomCase random = MakeRandomCase(rng);
  const int64_t micro_batch = Uniform(rng, 3, 6);  // As many samples as there may be replicas.
  random.strategy.mini_batch = micro_batch * Uniform(rng, 1, 8);
  for (Stage& stage : random.strategy.stages) {
    stage.micro_batch = micro_batch;
    stage.schedule.k = 1;
  }
  AssignInFlight(random.strategy);
  return random;
}

}  // namespace stagewright::testing
