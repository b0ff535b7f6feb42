#include "tests/support/schedule_cases.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/graph/operator_graph.h"
#include "common/strategy/in_flight.h"
#include "common/strategy/stage_edges.h"

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

void Connect(const Graph& graph, Strategy& strategy) {
  strategy.edges = StageEdges(graph, strategy.kind, strategy.stages);
  AssignInFlight(strategy);
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

Graph LinearGraph(const std::vector<std::vector<int32_t>>& reads) {
  GraphBuilder builder("linear");
  const Argument x = builder.Feature("x", {1});
  const auto node = [](int32_t n) { return Argument{ValueRef{NodeId(n), 0}}; };
  for (size_t i = 0; i < reads.size(); ++i) {
    const std::string name = absl::StrCat("layer", i);
    const auto width = static_cast<int64_t>(std::max<size_t>(reads[i].size(), 1));
    if (reads[i].size() < 2) {
      const Argument input = reads[i].empty() ? x : node(reads[i].front());
      builder.Add("aten.linear.default", {input, builder.Weight(name, {1, width})}, {1});
      continue;
    }
    Argument::List list;
    for (int32_t read : reads[i]) list.push_back(node(read));
    // One node that both joins and has a parameter keeps the numbers of layers and nodes equal.
    builder.Add("test.linear_cat.default", {{std::move(list)}, builder.Weight(name, {1, width})},
                {1});
  }
  builder.Loss(node(static_cast<int32_t>(reads.size()) - 1), {1});
  return builder.Build();
}

Graph ChainGraph(int32_t length) {
  std::vector<std::vector<int32_t>> reads(length);
  for (int32_t i = 1; i < length; ++i) reads[i] = {i - 1};
  return LinearGraph(reads);
}

Graph ProfiledGraph() {
  GraphData data;
  for (int i = 0; i < 2; ++i) {
    Node node;
    node.name = "n" + std::to_string(i);
    node.cost = ProfiledCost{10, 20, 1000, 400, 8};
    data.nodes.push_back(node);
  }
  data.nodes[1].after = {NodeId(0)};
  return *Graph::Create(data);
}

Cluster TestCluster(int32_t size) {
  ClusterData data;
  data.name = "test";
  data.kinds.push_back({"test", 1e12, 1e12, 0, 0});
  data.links.push_back({"link", 0, 1e9});
  for (int32_t d = 0; d < size; ++d) data.devices.push_back({absl::StrCat("d", d), 0, d, kGiB});
  data.routes.assign(static_cast<size_t>(size) * size, {0});
  for (int32_t d = 0; d < size; ++d) data.routes[static_cast<size_t>(d) * size + d].clear();
  auto cluster = Cluster::Create(std::move(data));
  CHECK(cluster.ok());
  return *std::move(cluster);
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
  Connect(graph, strategy);
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
