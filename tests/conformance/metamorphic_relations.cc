#include "tests/conformance/metamorphic_relations.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/random.h"

namespace stagewright::testing {
namespace {

// Every other problem has messages and sums that count.
std::unique_ptr<SmallProblem> MakeProblem(int32_t index) {
  return index % 2 == 0 ? MakeSmallProblem(index / 2 % kSmallProblems)
                        : MakeLeanProblem(index / 2 % kLeanProblems);
}

OwnedProblem Owned(const SmallProblem& small) {
  OwnedProblem owned{small.graph, small.cluster, nullptr, {}};
  owned.mini_batch = small.mini_batch;
  owned.optimizer = small.optimizer;
  return owned;
}

void SetCluster(ClusterData data, OwnedProblem& problem) {
  problem.cluster = Cluster::Create(std::move(data)).value();
}

void SetGraph(GraphData data, OwnedProblem& problem) {
  problem.graph = Graph::Create(std::move(data)).value();
}

template <typename Change>
void ChangeCluster(const Change& change, OwnedProblem& problem) {
  ClusterData data = problem.cluster.data();
  change(data);
  SetCluster(std::move(data), problem);
}

void MoreMemory(ProblemPair& pair) {
  ChangeCluster(
      [](ClusterData& data) {
        for (Device& device : data.devices) device.memory *= 2;
      },
      pair.easier);
}

void FasterLinks(ProblemPair& pair) {
  ChangeCluster(
      [](ClusterData& data) {
        for (Link& link : data.links) link.bytes_per_second *= 1.5;
      },
      pair.easier);
}

void FasterDevices(ProblemPair& pair) {
  ChangeCluster(
      [](ClusterData& data) {
        for (DeviceKind& kind : data.kinds) kind.flops_per_second *= 1.25;
      },
      pair.easier);
}

void OneMoreDevice(ProblemPair& pair) {
  if (pair.harder.cluster.size() == 1) return;
  pair.harder.cluster = Subcluster(pair.harder.cluster, pair.harder.cluster.size() - 1);
}

void Replicas(ProblemPair& pair) { pair.harder.options.allow_replicas = false; }

void Recomputation(ProblemPair& pair) { pair.harder.options.recompute = RecomputePolicy::kNever; }

void SplitBackward(ProblemPair& pair) { pair.harder.options.split_backward = false; }

void Loops(ProblemPair& pair) { pair.harder.options.max_loops = 1; }

void MoreLoops(ProblemPair& pair) { pair.harder.options.max_loops = 2; }

void Branches(ProblemPair& pair) { pair.harder.options.sequential = true; }

void MoreStages(ProblemPair& pair) { pair.harder.options.max_stages = 2; }

void MixedSizes(ProblemPair& pair) {
  pair.easier.options.per_stage_micro_batch = true;
  pair.easier.options.max_k = 2;
}

void AnySize(ProblemPair& pair) {
  pair.harder.options.micro_batch = std::max<int64_t>(1, pair.harder.mini_batch / 2);
}

// The nodes in the order given, under other ids and names.
void Renumber(const std::vector<int32_t>& order, OwnedProblem& problem) {
  GraphData data = problem.graph.data();
  std::vector<int32_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = static_cast<int32_t>(i);
  std::vector<Node> nodes;
  for (int32_t v : order) {
    Node& node = nodes.emplace_back(data.nodes[v]);
    node.name = absl::StrCat("renumbered", nodes.size());
    for (NodeId& before : node.after) before = NodeId(place[before.index()]);
  }
  data.nodes = std::move(nodes);
  SetGraph(std::move(data), problem);
}

// A topological order: of the nodes that are ready, pick(ready) is the place of the next.
template <typename Pick>
std::vector<int32_t> Order(const Graph& graph, const Pick& pick) {
  const Dag& dag = graph.dag();
  std::vector<int32_t> missing(dag.size());
  std::vector<int32_t> ready;
  std::vector<int32_t> order;
  for (int32_t v = 0; v < dag.size(); ++v) {
    missing[v] = static_cast<int32_t>(dag.Predecessors(v).size());
    if (missing[v] == 0) ready.push_back(v);
  }
  while (!ready.empty()) {
    const auto next = ready.begin() + pick(ready);
    const int32_t v = *next;
    ready.erase(next);
    order.push_back(v);
    for (int32_t w : dag.Successors(v)) {
      if (--missing[w] == 0) ready.push_back(w);
    }
  }
  return order;
}

void LastFirst(ProblemPair& pair) {
  Renumber(Order(pair.easier.graph,
                 [](const std::vector<int32_t>& ready) {
                   return std::max_element(ready.begin(), ready.end()) - ready.begin();
                 }),
           pair.easier);
}

void AnyOrder(ProblemPair& pair) {
  Rng random(31 + static_cast<uint64_t>(pair.easier.graph.size()));
  Renumber(Order(pair.easier.graph,
                 [&](const std::vector<int32_t>& ready) {
                   return Uniform(random, 0, static_cast<int64_t>(ready.size()) - 1);
                 }),
           pair.easier);
}

// What crosses between the two copies of a doubled graph takes at most this, there and back, if
// nothing hides it.
Nanos Crossing(const OwnedProblem& problem) {
  const Dag& dag = problem.graph.dag();
  int64_t readers = 0;
  double bytes = 0;
  for (int32_t v = 0; v < dag.size(); ++v) {
    if (dag.Predecessors(v).empty()) ++readers;
    if (!dag.Successors(v).empty()) continue;
    const ProfiledCost& cost = *problem.graph.node(NodeId(v)).cost;
    bytes += static_cast<double>(cost.activation_bytes) / static_cast<double>(cost.samples);
  }
  double per_byte = 0;
  Nanos latency = 0;
  for (int32_t a = 0; a < problem.cluster.size(); ++a) {
    for (int32_t b = 0; b < problem.cluster.size(); ++b) {
      if (a == b) continue;
      const Route& route = problem.cluster.route(DeviceId(a), DeviceId(b));
      per_byte = std::max(per_byte, 1e9 / route.bytes_per_second);
      latency = std::max(latency, route.latency);
    }
  }
  const double samples = 2 * static_cast<double>(problem.mini_batch * readers);
  return static_cast<Nanos>(samples * (bytes * per_byte + static_cast<double>(latency)));
}

// Two copies, one behind the other, on devices that have room for anything: whatever runs one copy
// runs both in turn, a loop more on each device.
void HalfAsLong(ProblemPair& pair) {
  for (OwnedProblem* each : {&pair.harder, &pair.easier}) {
    ChangeCluster(
        [](ClusterData& data) {
          for (Device& device : data.devices) device.memory = 64 * kGiB;
        },
        *each);
  }
  GraphData data = pair.harder.graph.data();
  const auto n = static_cast<int32_t>(data.nodes.size());
  const Dag& dag = pair.harder.graph.dag();
  for (int32_t v = 0; v < n; ++v) {
    Node node = data.nodes[v];
    node.name += " again";
    for (NodeId& before : node.after) before = NodeId(before.value() + n);
    if (node.after.empty()) {
      for (int32_t last = 0; last < n; ++last) {
        if (dag.Successors(last).empty()) node.after.push_back(NodeId(last));
      }
    }
    data.nodes.push_back(std::move(node));
  }
  pair.times = 2;
  pair.more = Crossing(pair.harder);
  SetGraph(std::move(data), pair.easier);
}

constexpr Relation kRelations[] = {
    {"twice the memory", MoreMemory},
    {"links half as fast again", FasterLinks},
    {"faster devices", FasterDevices},
    {"one more device", OneMoreDevice},
    {"replicas allowed", Replicas},
    {"recomputation allowed", Recomputation},
    {"split backward passes allowed", SplitBackward},
    {"loops allowed", Loops},
    {"more than two loops allowed", MoreLoops},
    {"graphs allowed", Branches},
    {"more than two stages allowed", MoreStages},
    {"sizes per stage and kFkB allowed", MixedSizes},
    {"any micro-batch size", AnySize},
    {"operators last first", LastFirst, true},
    {"operators in any order", AnyOrder, true},
    {"doubled in series", HalfAsLong},
};

}  // namespace

std::span<const Relation> Relations() { return kRelations; }

std::unique_ptr<ProblemPair> MakePair(const Relation& relation, int32_t index) {
  const auto small = MakeProblem(index);
  auto pair = std::make_unique<ProblemPair>(ProblemPair{Owned(*small), Owned(*small)});
  relation.apply(*pair);
  for (OwnedProblem* each : {&pair->harder, &pair->easier}) {
    each->costs = std::make_unique<RatedProfileCosts>(each->graph);
  }
  return pair;
}

std::string NameOfProblem(int32_t index) { return MakeProblem(index)->name; }

}  // namespace stagewright::testing
