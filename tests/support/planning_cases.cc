#include "tests/support/planning_cases.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/strategy/in_flight.h"
#include "common/strategy/stage_edges.h"

namespace stagewright::testing {
namespace {

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  CHECK(value.ok());
  return *std::move(value);
}

std::vector<int32_t> RandomPredecessors(Random& random, int32_t node) {
  std::vector<int32_t> before;
  if (node == 0) return before;
  const int64_t count = Draw(random, 0, 9) == 0 ? 0 : Draw(random, 1, 3);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t nearest = std::min<int64_t>(node, Draw(random, 1, 6));
    before.push_back(static_cast<int32_t>(node - nearest));
  }
  std::sort(before.begin(), before.end());
  before.erase(std::unique(before.begin(), before.end()), before.end());
  return before;
}

std::vector<int64_t> Divisors(int64_t n) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return divisors;
}

int64_t OneOf(Random& random, const std::vector<int64_t>& items) {
  return items[Draw(random, 0, static_cast<int64_t>(items.size()) - 1)];
}

// Every vertex as soon as it is ready, in random order.
std::vector<int32_t> RandomOrder(Random& random, const Dag& dag) {
  std::vector<int32_t> missing(dag.size());
  std::vector<int32_t> ready;
  for (int32_t v = 0; v < dag.size(); ++v) {
    missing[v] = static_cast<int32_t>(dag.Predecessors(v).size());
    if (missing[v] == 0) ready.push_back(v);
  }
  std::vector<int32_t> order;
  while (!ready.empty()) {
    const int64_t pick = Draw(random, 0, static_cast<int64_t>(ready.size()) - 1);
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

DeviceKind TestKind(const std::string& name, double flops) {
  DeviceKind kind;
  kind.name = name;
  kind.flops_per_second = flops;
  kind.memory_bytes_per_second = 1e12;
  return kind;
}

}  // namespace

Graph ProfiledGraph(const std::vector<Work>& nodes) {
  GraphData data;
  data.name = "profile";
  for (const Work& work : nodes) {
    Node node;
    node.name = absl::StrCat("n", data.nodes.size());
    for (int32_t before : work.after) node.after.push_back(NodeId(before));
    node.cost =
        ProfiledCost{work.forward, work.backward, work.activation_bytes, work.parameter_bytes, 1};
    data.nodes.push_back(std::move(node));
  }
  return Must(Graph::Create(std::move(data)));
}

Graph ProfiledChain(int32_t length, Work each) {
  std::vector<Work> nodes;
  for (int32_t i = 0; i < length; ++i) {
    nodes.push_back(each);
    nodes.back().after = i > 0 ? std::vector<int32_t>{i - 1} : std::vector<int32_t>{};
  }
  return ProfiledGraph(nodes);
}

Cluster FlatCluster(int32_t size, Bytes memory, Nanos latency, double bytes_per_second) {
  HierarchicalSpec spec;
  spec.name = "flat";
  spec.devices_per_node = size;
  spec.kind = TestKind("test", 1e12);
  spec.memory = memory;
  spec.inside = {"port", latency, bytes_per_second};
  spec.outside = {"uplink", latency, bytes_per_second};
  return Must(MakeHierarchical(spec));
}

int64_t Draw(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

Graph RandomProfile(Random& random, int32_t nodes) {
  std::vector<Work> work(nodes);
  const Bytes largest = Draw(random, 0, 1) == 0 ? kMiB : 64 * kMiB;
  for (int32_t v = 0; v < nodes; ++v) {
    work[v].after = RandomPredecessors(random, v);
    if (Draw(random, 0, 4) == 0) continue;  // Costs nothing.
    work[v].forward = Draw(random, 0, 200) * kMicrosecond;
    work[v].backward = Draw(random, 0, 2) * work[v].forward;
    work[v].activation_bytes = Bytes(Draw(random, 0, largest.count()));
    work[v].parameter_bytes = Draw(random, 0, 1) * Bytes(Draw(random, 0, (16 * kMiB).count()));
  }
  return ProfiledGraph(work);
}

Graph RandomNetwork(Random& random, int32_t nodes) {
  constexpr int64_t kWidth = 64;
  GraphData data;
  data.name = "network";
  const TensorMeta features{DType::kFloat32, {{1, 0}, {0, kWidth}}};
  data.inputs = {{"x", features, InputRole::kFeature}};
  std::vector<bool> read(nodes);
  for (int32_t v = 0; v < nodes; ++v) {
    Node node;
    node.name = absl::StrCat("v", v);
    node.outputs = {features};
    std::vector<int32_t> before = RandomPredecessors(random, v);
    for (int32_t u : before) read[u] = true;
    if (before.size() >= 2) {
      node.target = "aten.add.Tensor";
      node.args = {{ValueRef{NodeId(before[0])}}, {ValueRef{NodeId(before[1])}}};
      read[before.back()] = before.size() == 2;
    } else {
      Argument source{InputId(0)};
      if (!before.empty()) source = {ValueRef{NodeId(before[0])}};
      node.args = {source};
      node.target = "aten.relu.default";
      if (before.empty() || Draw(random, 0, 1) == 0) {
        node.target = "aten.linear.default";
        node.args.push_back({ParameterId(static_cast<int64_t>(data.parameters.size()))});
        Parameter weight;
        weight.name = absl::StrCat("w", v);
        weight.shape = {kWidth, kWidth};
        weight.trainable = Draw(random, 0, 3) > 0;
        data.parameters.push_back(std::move(weight));
      }
    }
    data.nodes.push_back(std::move(node));
  }
  // All ends come together in one list, whose mean is the loss.
  Argument::List ends;
  for (int32_t v = 0; v < nodes; ++v) {
    if (!read[v]) ends.push_back({ValueRef{NodeId(v)}});
  }
  const auto width = static_cast<int64_t>(ends.size()) * kWidth;
  Node join;
  join.name = "join";
  join.target = "aten.cat.default";
  join.args = {{std::move(ends)}, {SymInt{0, 1}}};
  join.outputs = {{DType::kFloat32, {{1, 0}, {0, width}}}};
  data.nodes.push_back(std::move(join));
  Node loss;
  loss.name = "loss";
  loss.target = "aten.mean.default";
  loss.args = {{ValueRef{NodeId(nodes)}}};
  loss.outputs = {{DType::kFloat32, {}}};
  data.nodes.push_back(std::move(loss));
  data.loss = ValueRef{NodeId(nodes + 1)};
  return Must(Graph::Create(std::move(data)));
}

Cluster RandomCluster(Random& random, int32_t most) {
  HierarchicalSpec spec;
  spec.name = "random";
  spec.devices_per_node = static_cast<int32_t>(Draw(random, 1, std::min(most, 4)));
  spec.nodes = static_cast<int32_t>(Draw(random, 1, most / spec.devices_per_node));
  spec.kind = TestKind("slow", 1e11);
  spec.kind.kernel_overhead = Draw(random, 0, 10) * kMicrosecond;
  spec.memory = Draw(random, 1, 64) * 64 * kMiB;
  spec.inside = {"port", Draw(random, 0, 5) * kMicrosecond, 1e10};
  spec.outside = {"uplink", Draw(random, 0, 50) * kMicrosecond, 1e9};
  Cluster cluster = Must(MakeHierarchical(spec));
  if (Draw(random, 0, 1) == 0) return cluster;
  ClusterData data = cluster.data();
  data.kinds.push_back(TestKind("fast", 2e11));
  for (Device& device : data.devices) device.kind = static_cast<int32_t>(Draw(random, 0, 1));
  return Must(Cluster::Create(std::move(data)));
}

Strategy RandomStrategy(Random& random, const Graph& graph, const OperatorGraph& operators,
                        const Cluster& cluster, int64_t mini_batch) {
  Strategy strategy;
  strategy.kind = Draw(random, 0, 2) == 0 ? StrategyKind::kSequential : StrategyKind::kGraph;
  strategy.mini_batch = mini_batch;
  const std::vector<int32_t> order = RandomOrder(random, operators.dag());
  const int64_t most = std::min<int64_t>(operators.size(), cluster.size());
  const int64_t num_stages = Draw(random, 1, most);
  std::vector<DeviceId> devices;
  for (int32_t d = 0; d < cluster.size(); ++d) devices.push_back(DeviceId(d));
  std::shuffle(devices.begin(), devices.end(), random);
  const bool same_micro_batch = Draw(random, 0, 1) == 0;
  const int64_t common = OneOf(random, Divisors(mini_batch));
  int64_t begin = 0;
  size_t next_device = 0;
  for (int64_t s = 0; s < num_stages; ++s) {
    const int64_t later = num_stages - s - 1;
    const int64_t end =
        later == 0 ? operators.size() : Draw(random, begin + 1, operators.size() - later);
    Stage stage;
    stage.nodes = NodesOf(operators, graph, order, begin, end);
    stage.replicated = ReplicatedInto(graph, operators, stage.nodes);
    stage.micro_batch = same_micro_batch ? common : OneOf(random, Divisors(mini_batch));
    const auto spare = static_cast<int64_t>(devices.size() - next_device) - later;
    const int64_t replicas = Draw(random, 1, std::min(spare, stage.micro_batch));
    for (int64_t r = 0; r < replicas; ++r) stage.devices.push_back(devices[next_device++]);
    const int64_t micro_batches = mini_batch / stage.micro_batch;
    stage.schedule.k = micro_batches % 2 == 0 && Draw(random, 0, 3) == 0 ? 2 : 1;
    strategy.stages.push_back(std::move(stage));
    begin = end;
  }
  strategy.edges = StageEdges(graph, strategy.kind, strategy.stages);
  AssignInFlight(strategy);
  return strategy;
}

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
  strategy.edges = StageEdges(graph, strategy.kind, strategy.stages);
  AssignInFlight(strategy);
  return strategy;
}

}  // namespace stagewright::testing
